"""Parses and compares schemas for the embedded registry."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_kafka_sink.errors import InstallationError, RegistryError, SchemaError
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText, resolved

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


_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("null", "boolean", "double"), ()),
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The primitive types of Avro, each with the others as which a reader accepts it."""


def misfits(reader: Any, writer: Any) -> list[str]:
    """Returns why a reader cannot read a writer's Avro data, as far as that is checked; empty if nothing is found.

    Fields of records are compared: one that only the reader has needs a default, and a primitive type may become one to which
    Avro promotes it. All else is taken to be compatible: unions, nested types, and names.

    Args:
        reader: the reader's schema, as parsed JSON.
        writer: the writer's.
    """
    if not _is_record(reader) or not _is_record(writer):
        return _type_mismatch(reader, writer, "/")
    types = {field["name"]: field["type"] for field in writer["fields"]}
    found = []
    for place, field in enumerate(reader["fields"]):
        name = next((name for name in (field["name"], *field.get("aliases", ())) if name in types), None)
        if name is not None:
            found += _type_mismatch(field["type"], types[name], f"/fields/{place}/type")
        elif "default" not in field:
            text = f"the field '{field['name']}' has no default value and the writer does not have it"
            found.append(_misfit("READER_FIELD_MISSING_DEFAULT_VALUE", f"/fields/{place}", text))
    return found


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record"


def _type_mismatch(reader: Any, writer: Any, path: str) -> list[str]:
    primitives = all(isinstance(each, str) and each in _PROMOTIONS for each in (reader, writer))
    if not primitives or reader == writer or reader in _PROMOTIONS[writer]:
        return []
    return [_misfit("TYPE_MISMATCH", path, f"reader type: {reader} not compatible with writer type: {writer}")]


def _misfit(kind: str, path: str, text: str) -> str:
    return f"{{errorType:'{kind}', description:'At path '{path}': {text}', additionalInfo:'{path}'}}"
