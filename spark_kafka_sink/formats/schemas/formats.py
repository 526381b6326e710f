"""The formats of schemas, by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from spark_kafka_sink.formats.schemas.schema_format import SchemaFormat

# Class of each format. Its module is imported when it is used, because a task needs one format at most.
_FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "avro": ("avro.avro_format", "AvroFormat"),
    "json-schema": ("json_schema.json_schema_format", "JsonSchemaFormat"),
    "protobuf": ("protobuf.protobuf_format", "ProtobufFormat"),
}


def schema_format(name: str) -> SchemaFormat:
    """Returns a format. `name` is a value of the options `key.format` and `value.format`."""
    module, kind = _FORMATS[name]
    made: SchemaFormat = getattr(import_module(f"spark_kafka_sink.formats.{module}"), kind)()
    return made
