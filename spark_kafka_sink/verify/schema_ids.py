"""The schema that a record was written with: its id before the data, or in a header, and its text from the registry."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_kafka_sink.errors import InstallationError, RegistryError, SchemaError
from spark_kafka_sink.formats.protobuf.proto_files import files_by_name, in_order
from spark_kafka_sink.installation import not_installed
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.registry.registry_client import NO_SCHEMA, RegistryClient, SchemaText

ID_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Headers in which Confluent's serializers may put the id."""

Headers = Sequence[tuple[str, bytes | None]]
SchemaKey = int | str
"""A schema's id, or its guid."""

MAX_SCHEMAS: Final = 1000
"""Maximum number of different schema ids of a topic: more are a sign of records without an id."""

_ID: Final = struct.Struct(">I")
ID_BYTES: Final = 5
"""Size of an id with the 0 before it."""
GUID_BYTES: Final = 17
"""Size of a guid with the 1 before it."""


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A schema that records of a topic name, or why it is not known. It pickles.

    Attributes:
        key: the id or the guid in the records.
        schema: the schema; None if the registry does not have it.
        named: the schemas that it refers to, by the name of the reference; each comes after those that it uses.
        files: for Protobuf, the compiled files as a FileDescriptorSet, the schema's own last.
        problem: why `schema` is None.
    """

    key: SchemaKey
    schema: SchemaText | None
    named: tuple[tuple[str, SchemaText], ...] = field(default=(), repr=False)
    files: bytes = field(default=b"", repr=False)
    problem: str = ""


class NoSchemaIdError(Exception):
    """A record does not begin with a schema's id."""


def id_bytes(part: str, data: bytes, headers: Headers = ()) -> bytes:
    """Returns the bytes that hold a record's schema id: those of its header, or the data itself.

    A header comes first, as in Confluent's deserializers. Then the data is all payload, also if it begins like an id.
    """
    name = ID_HEADERS[part]
    of_header = next((value for header, value in headers if header == name), None)
    return data if of_header is None else of_header


def schema_key(data: bytes) -> SchemaKey:
    """Returns the id or the guid at the start of `id_bytes`. Raises NoSchemaIdError if there is none."""
    if data[:1] == b"\0" and len(data) >= ID_BYTES:
        return int(_ID.unpack_from(data, 1)[0])
    if data[:1] == b"\1" and len(data) >= GUID_BYTES:
        return str(uuid.UUID(bytes=data[1:GUID_BYTES]))
    raise NoSchemaIdError(f"does not begin with a schema id ({len(data):,} bytes)")


def found_schema(key: SchemaKey, client: RegistryClient) -> TopicSchema:
    """Asks the registry for a schema. One that it does not have gets a `problem`.

    Raises:
        RegistryError: the registry cannot be reached, or refuses the request.
    """
    try:
        schema = (client.by_guid(key) if isinstance(key, str) else client.by_id(key)).schema
        named = client.references(schema)
    except RegistryError as error:
        no_guids = isinstance(key, str) and error.facts.get("status") == 404
        if error.facts.get("error_code") not in NO_SCHEMA and not no_guids:
            raise
        return TopicSchema(key, None, problem=f"the registry does not have its schema {key}")
    if schema.kind != "PROTOBUF":
        return TopicSchema(key, schema, tuple(named.items()))
    try:
        return TopicSchema(key, schema, tuple(named.items()), files=compiled(schema, named))
    except ValueError as error:
        return TopicSchema(key, None, problem=f"its schema {key} cannot be used: {error}")


def not_looked_up(key: SchemaKey) -> TopicSchema:
    """Returns the schema of an id beyond MAX_SCHEMAS."""
    return TopicSchema(key, None, problem=f"its schema {key} was not looked up: the topic names over {MAX_SCHEMAS:,} schemas")


# Protobuf


def compiled(schema: SchemaText, named: Mapping[str, SchemaText]) -> bytes:
    """Returns a schema and all that it imports as a FileDescriptorSet: each file after those that it imports, the schema last.

    Raises:
        InstallationError: protoc is not installed.
        ValueError: the schema is not valid.
    """
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
    except ImportError:
        text = f"Protobuf cannot be read: {not_installed('google.protobuf')}"
        raise InstallationError(text, library="google.protobuf") from None
    try:
        main, files = files_by_name(schema.text, {name: one.text for name, one in named.items()}, None)
        data: bytes = FileDescriptorSet(file=in_order(main, files)).SerializeToString()
        last_file(data)
    except SchemaError as error:
        raise ValueError(error.message) from None
    except TypeError as error:
        raise ValueError(f"it is not valid Protobuf: {quoted(str(error))}") from None
    return data


def last_file(files: bytes) -> Any:
    """Returns the descriptor of the last file of a FileDescriptorSet, in a pool of its own."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    parsed = descriptor_pb2.FileDescriptorSet.FromString(files).file
    for one in parsed:
        pool.Add(one)
    return pool.FindFileByName(parsed[-1].name)
