"""Decodes keys and values with confluent-kafka's deserializers, which are not the sink's code.

They get schemas that were found before, so a task needs neither the registry nor its secrets.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.installation import not_installed
from spark_kafka_sink.registry.registry_client import SchemaText
from spark_kafka_sink.verify.conversion import AVRO, JSON, PROTOBUF
from spark_kafka_sink.verify.protobuf_files import last_file
from spark_kafka_sink.verify.schema_ids import (
    GUID_BYTES,
    ID_BYTES,
    ID_HEADERS,
    Headers,
    NoSchemaIdError,
    SchemaKey,
    TopicSchema,
    id_bytes,
    schema_key,
)

Find = Callable[[SchemaKey], TopicSchema]
Decode = Callable[[bytes, Headers], Any]
Deserialize = Callable[[bytes, Any], Any]


class UndecodableError(Exception):
    """A key or a value cannot be decoded. The text does not name the record."""


def json_value(data: bytes) -> Any:
    """Returns parsed JSON, with decimals for fractions, so that no digit is lost."""
    return json.loads(data, parse_float=Decimal)


class SchemaDecoder:
    """Decodes one part of the records of a topic by the schemas that they name."""

    def __init__(self, topic: str, part: str, find: Find, kind: str | None = None) -> None:
        """Makes a decoder.

        Args:
            topic: the topic.
            part: key or value.
            find: returns the schema with an id. It is called once for each.
            kind: the kind that schemas must have; None: any.
        """
        self._topic = topic
        self._part = part
        self._find = find
        self._kind = kind
        self._decoders: dict[tuple[SchemaKey, bytes], Deserialize] = {}
        self._schemas: dict[SchemaKey, TopicSchema] = {}

    def schema(self, data: bytes, headers: Headers = ()) -> TopicSchema:
        """Returns the schema that a key or a value names. Raises UndecodableError if it names none."""
        try:
            key = schema_key(id_bytes(self._part, data, headers))
        except NoSchemaIdError as error:
            raise UndecodableError(str(error)) from None
        if key not in self._schemas:
            self._schemas[key] = self._find(key)
        return self._schemas[key]

    def __call__(self, data: bytes, headers: Headers = ()) -> Any:
        """Returns the decoded value. Raises UndecodableError."""
        from confluent_kafka.serialization import MessageField, SerializationContext

        found = self.schema(data, headers)
        if found.schema is None:
            raise UndecodableError(found.problem)
        if self._kind not in (None, found.schema.kind):
            raise UndecodableError(f"schema {found.key} is {found.schema.kind}, not {self._kind}")
        named = id_bytes(self._part, data, headers)
        if named is not data:
            # confluent-kafka refuses short data whose id is in a header. Any id will do, because the schema is known.
            after_id = GUID_BYTES if named[:1] == b"\1" else ID_BYTES
            data = bytes(ID_BYTES) + named[after_id:] + data
            headers = [one for one in headers if one[0] != ID_HEADERS[self._part]]
        context = SerializationContext(
            self._topic, MessageField.KEY if self._part == "key" else MessageField.VALUE, list(headers)
        )
        try:
            value = self._decoder(found, data)(data, context)
            if found.schema.kind == AVRO:
                self._check_end(found, data, context, value)
            elif found.schema.kind == PROTOBUF:
                _check_fields(found, value)
            return value
        except (InstallationError, UndecodableError):
            raise
        except ImportError as error:
            text = f"records with a schema cannot be read: {not_installed('confluent_kafka')}"
            raise InstallationError(text, library=str(error.name)) from None
        except Exception as error:  # of fastavro, protobuf, json and jsonschema: each has its own
            text = " ".join(str(error).split())[:200]
            raise UndecodableError(f"schema {found.key}: {text or type(error).__name__} ({type(error).__name__})") from None

    def _check_end(self, found: TopicSchema, data: bytes, context: Any, value: Any) -> None:
        """Raises UndecodableError if bytes are left after the value, which Avro's readers do not notice.

        The last byte belongs to the value if it cannot be read without that byte, or is another value then.
        """
        if len(data) <= ID_BYTES:
            return
        try:
            shorter = self._decoder(found, data)(data[:-1], context)
        except Exception:
            return
        if shorter == value:
            raise UndecodableError(f"schema {found.key}: bytes are left after the value")

    def _decoder(self, found: TopicSchema, data: bytes) -> Deserialize:
        assert found.schema is not None
        indexes = b""
        if found.schema.kind == PROTOBUF:
            indexes = _message_indexes(data)
        decoder = self._decoders.get((found.key, indexes))
        if decoder is None:
            decoder = self._decoders[found.key, indexes] = _deserializer(found, indexes)
        return decoder


class _OfflineRegistry:
    """Registry client without a registry, with the schemas that a deserializer asks for."""

    def __init__(self, found: TopicSchema) -> None:
        assert found.schema is not None
        self._schema = _confluents(found.schema)
        named = dict(found.named)
        self._versions = {
            (one.subject, one.version): _confluents(named[one.name])
            for schema in (found.schema, *named.values())
            for one in schema.references
        }

    def config(self) -> dict[str, Any]:
        return {}

    def get_schema(self, *_: Any, **__: Any) -> Any:
        return self._schema

    get_schema_by_guid = get_schema

    def get_version(self, subject: str, version: int, *_: Any, **__: Any) -> Any:
        from confluent_kafka.schema_registry import RegisteredSchema

        schema = self._versions[subject, version]
        return RegisteredSchema(schema_id=None, schema=schema, subject=subject, version=version, guid=None)


def _confluents(schema: SchemaText) -> Any:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    references = [SchemaReference(one.name, one.subject, one.version) for one in schema.references]
    return Schema(schema.text, schema.kind, references)


def _deserializer(found: TopicSchema, indexes: bytes) -> Deserialize:
    from confluent_kafka.schema_registry import topic_subject_name_strategy

    assert found.schema is not None
    conf = {"subject.name.strategy": topic_subject_name_strategy}
    if found.schema.kind == PROTOBUF:
        return _protobuf_deserializer(found, indexes, conf)
    registry: Any = _OfflineRegistry(found)
    if found.schema.kind == AVRO:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        avro: Deserialize = AvroDeserializer(registry, conf=conf)
        return avro
    if found.schema.kind == JSON:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        of_json: Deserialize = JSONDeserializer(None, schema_registry_client=registry, conf=conf, json_decode=json_value)
        return of_json
    raise UndecodableError(f"schema {found.key} is {found.schema.kind}, which is not supported")


# Protobuf


def _check_fields(found: TopicSchema, message: Any) -> None:
    """Raises UndecodableError if a message has fields that its schema does not have: it was written with another one."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise UndecodableError(f"schema {found.key}: the message has fields that the schema does not have")


def _message_indexes(data: bytes) -> bytes:
    """Returns the bytes between the id and the data, which say which message of the file follows."""
    count, end = _zigzag(data, ID_BYTES)
    for _ in range(count):
        _, end = _zigzag(data, end)
    return data[ID_BYTES:end]


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    """Returns the number at a place, and the place after it."""
    number = shift = 0
    while True:
        if place >= len(data) or shift > 35:
            raise UndecodableError("the message indexes after its schema id are damaged")
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place


def _protobuf_deserializer(found: TopicSchema, indexes: bytes, conf: Mapping[str, Any]) -> Deserialize:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from google.protobuf import message_factory

    descriptor = last_file(found.files)
    path = _index_path(indexes)
    messages = list(descriptor.message_types_by_name.values())
    for place, index in enumerate(path):
        if place:
            messages = list(descriptor.nested_types)
        if not 0 <= index < len(messages):
            raise UndecodableError(f"schema {found.key} has no message with the indexes {path}")
        descriptor = messages[index]
    message: Any = message_factory.GetMessageClass(descriptor)
    # Without a registry it reads the same bytes: what it would ask for is in the class.
    deserialize: Deserialize = ProtobufDeserializer(message, {**conf, "use.deprecated.format": False})
    return deserialize


def _index_path(indexes: bytes) -> list[int]:
    count, place = _zigzag(indexes, 0)
    path = []
    for _ in range(count):
        index, place = _zigzag(indexes, place)
        path.append(index)
    return path or [0]


# Formats without a schema

_NUMBERS: Final[Mapping[str, struct.Struct]] = {
    "short": struct.Struct(">h"),
    "integer": struct.Struct(">i"),
    "long": struct.Struct(">q"),
    "float": struct.Struct(">f"),
    "double": struct.Struct(">d"),
    "boolean": struct.Struct(">?"),
}
PLAIN_FORMATS: Final = ("json", *_NUMBERS)
"""Formats of Kafka's own serializers, and JSON."""


def plain_decoder(name: str) -> Decode:
    """Returns what decodes one of PLAIN_FORMATS."""

    def number(data: bytes, headers: Headers = ()) -> Any:
        if len(data) != _NUMBERS[name].size:
            raise UndecodableError(f"has {len(data):,} bytes, and {name} has {_NUMBERS[name].size}")
        return _NUMBERS[name].unpack(data)[0]

    def text(data: bytes, headers: Headers = ()) -> Any:
        try:
            return json_value(data)
        except ValueError as error:
            raise UndecodableError(f"is not valid JSON: {error}") from None

    return text if name == "json" else number
