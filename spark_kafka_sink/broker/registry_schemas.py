"""Parses schemas for the embedded registry, with this package's own formats."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from spark_kafka_sink.errors import InstallationError, RegistryError, SchemaError
from spark_kafka_sink.registry.references import SchemaReference, SchemaText, resolved

Find = Callable[[SchemaReference], SchemaText]
"""Returns a schema of the registry."""


def check_schema(schema: SchemaText, find: Find) -> None:
    """Raises SchemaError for a schema that is not valid.

    A JSON Schema is checked if the extra `json-schema` is installed. Protobuf is not checked, because that takes a compiler.
    """
    if schema.kind == "PROTOBUF":
        return
    named = _named(schema, find)
    try:
        json.loads(schema.text)
        if schema.kind == "AVRO":
            from spark_kafka_sink.formats.avro.avro_defaults import check_defaults
            from spark_kafka_sink.formats.avro.avro_schema import parse

            check_defaults(parse(schema.text, named), len(schema.text) + sum(map(len, named.values())))
        else:
            from spark_kafka_sink.formats.json_schema.json_schema_format import JsonSchemaFormat

            JsonSchemaFormat().prepared(schema.text, named, None)
    except InstallationError:
        return
    except (ValueError, RecursionError) as error:
        raise SchemaError(str(error)) from None


def serialized(schema: SchemaText, find: Find) -> str:
    """Returns the text of `format=serialized`: for Protobuf its FileDescriptorProto in base64, as Confluent's registry.

    Raises:
        SchemaError: the schema is not valid.
        InstallationError: the extra `protobuf` is not installed.
    """
    if schema.kind != "PROTOBUF":
        return schema.text
    from spark_kafka_sink.formats.protobuf.proto_files import check_libraries, files_by_name

    check_libraries()
    main, files = files_by_name(schema.text, _named(schema, find), None)
    return base64.b64encode(files[main].SerializeToString(deterministic=True)).decode()


def _named(schema: SchemaText, find: Find) -> dict[str, str]:
    """Returns the texts of all schemas that a schema uses, by the names of the references."""
    try:
        return {name: one.text for name, one in resolved(schema, find).items()}
    except RegistryError as error:
        raise SchemaError(error.message) from None
