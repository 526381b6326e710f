"""Decodes keys and values with fastavro and confluent-kafka's deserializers, which are not the sink's code.

They get schemas that were found before, so a task needs neither the registry nor its secrets. The last part makes text of them.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from spark_kafka_sink.errors import InstallationError, SchemaError
from spark_kafka_sink.formats.avro.avro_schema import Array, AvroType, Fixed, Map, Primitive, Record, Union, parse
from spark_kafka_sink.installation import check_extra, not_installed
from spark_kafka_sink.options.registry_options import RegistryConfig
from spark_kafka_sink.registry.registry_client import RegistryClient, SchemaText
from spark_kafka_sink.verify.conversion import AVRO, JSON, PROTOBUF
from spark_kafka_sink.verify.json_values import as_json, json_value, plain, validated_json
from spark_kafka_sink.verify.record_errors import UndecodableError, described
from spark_kafka_sink.verify.schema_ids import (
    GUID_BYTES,
    ID_BYTES,
    ID_HEADERS,
    MAX_SCHEMAS,
    Headers,
    NoSchemaIdError,
    SchemaKey,
    TopicSchema,
    found_schema,
    id_bytes,
    last_file,
    not_looked_up,
    schema_key,
)

Find = Callable[[SchemaKey], TopicSchema]
Decode = Callable[[bytes, Headers], Any]
Deserialize = Callable[[bytes, Any], Any]

_MOST_WITHOUT_BYTES: Final = 1_000


class SchemaDecoder:
    """Decodes one part of the records of a topic by the schemas that they name."""

    def __init__(self, topic: str, part: str, find: Find, kind: str | None = None) -> None:
        """Makes a decoder of a part, key or value. kind: what schemas must be; None: any.

        find: returns the schema with an id. It is called once for each, and for at most MAX_SCHEMAS.
        """
        self._topic = topic
        self._part = part
        self._find = find
        self._kind = kind
        self._decoders: dict[tuple[SchemaKey, tuple[int, ...]], Deserialize] = {}
        self._schemas: dict[SchemaKey, TopicSchema] = {}

    def schema(self, data: bytes, headers: Headers = ()) -> TopicSchema:
        """Returns the schema that a key or a value names. Raises UndecodableError if it names none."""
        named = id_bytes(self._part, data, headers)
        try:
            key = schema_key(named)
        except NoSchemaIdError as error:
            where = "" if named is data else f"has a header {ID_HEADERS[self._part]} that "
            raise UndecodableError(f"{where}{error}") from None
        if key not in self._schemas:
            if len(self._schemas) >= MAX_SCHEMAS:
                return not_looked_up(key)
            self._schemas[key] = self._find(key)
        return self._schemas[key]

    def __call__(self, data: bytes, headers: Headers = ()) -> Any:
        """Returns the decoded value. Raises UndecodableError."""
        found = self.schema(data, headers)
        if found.schema is None:
            raise UndecodableError(found.problem)
        if self._kind not in (None, found.schema.kind):
            raise UndecodableError(f"schema {found.key} is {found.schema.kind}, not {self._kind}")
        named = id_bytes(self._part, data, headers)
        where = f"schema {found.key}"
        if named is not data:
            where += f" of the header {ID_HEADERS[self._part]}"
            # Any id will do, because the schema is known.
            after_id = GUID_BYTES if named[:1] == b"\1" else ID_BYTES
            data = bytes(ID_BYTES) + named[after_id:] + data
            headers = [one for one in headers if one[0] != ID_HEADERS[self._part]]
        try:
            return self._decoder(found)(data, None) if found.schema.kind == AVRO else self._value(found, data, headers)
        except InstallationError:
            raise
        except ImportError as error:
            text = f"records with a schema cannot be read: {not_installed('confluent_kafka')}"
            raise InstallationError(text, library=str(error.name)) from None
        except UndecodableError as error:
            raise UndecodableError(f"{where}: {error}") from None
        except Exception as error:  # of fastavro, protobuf and jsonschema: each has its own
            raise UndecodableError(f"{where}: {described(error)}") from None

    def _value(self, found: TopicSchema, data: bytes, headers: Headers) -> Any:
        from confluent_kafka.serialization import MessageField, SerializationContext

        assert found.schema is not None
        field = MessageField.KEY if self._part == "key" else MessageField.VALUE
        path = _message_path(data) if found.schema.kind == PROTOBUF else ()
        value = self._decoder(found, path)(data, SerializationContext(self._topic, field, list(headers)))
        if found.schema.kind == PROTOBUF:
            size = value.ByteSize()
            value.DiscardUnknownFields()
            if value.ByteSize() != size:  # it was written with another schema
                raise UndecodableError("the message has fields that the schema does not have")
        return value

    def _decoder(self, found: TopicSchema, path: tuple[int, ...] = ()) -> Deserialize:
        decoder = self._decoders.get((found.key, path))
        if decoder is None:
            decoder = self._decoders[found.key, path] = _deserializer(found, path)
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


def _deserializer(found: TopicSchema, path: tuple[int, ...]) -> Deserialize:
    from confluent_kafka.schema_registry import topic_subject_name_strategy

    assert found.schema is not None
    conf = {"subject.name.strategy": topic_subject_name_strategy}
    if found.schema.kind == PROTOBUF:
        return _protobuf_deserializer(found, path, conf)
    if found.schema.kind == AVRO:
        _check_sizes(found)
        return _avro_deserializer(found)
    registry: Any = _OfflineRegistry(found)
    if found.schema.kind == JSON:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        parsed = validated_json(found.schema.text, {name: one.text for name, one in found.named})
        # Its own validation compares floats, of which 0.3 is not a multiple of 0.1.
        of_json: Deserialize = JSONDeserializer(
            None, schema_registry_client=registry, conf={**conf, "validate": False}, json_decode=parsed
        )
        return of_json
    raise UndecodableError(f"it is {found.schema.kind}, which is not supported")


# Avro


def _check_sizes(found: TopicSchema) -> None:
    """Raises UndecodableError for a schema of which a few bytes may be any number of values."""
    assert found.schema is not None
    try:
        waiting = [parse(found.schema.text, {name: one.text for name, one in found.named})]
    except SchemaError as error:
        raise UndecodableError(error.message) from None
    without_bytes: dict[int, int] = {}
    seen: set[int] = set()
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        if _values_without_bytes(kind, without_bytes) > _MOST_WITHOUT_BYTES:
            raise UndecodableError(f"{kind} has more than {_MOST_WITHOUT_BYTES:,} values without a byte")
        match kind:
            case Array(items=items):
                if _values_without_bytes(items, without_bytes):
                    raise UndecodableError(f"{kind}: its elements have no bytes, so that 12 bytes may be 10^12 of them")
                waiting.append(items)
            case Map(values=values):
                waiting.append(values)
            case Union(branches=branches):
                waiting += branches
            case Record(fields=fields):
                waiting += [field.type for field in fields]


def _values_without_bytes(kind: AvroType, known: dict[int, int]) -> int:
    """Returns how many values each value of a type is if it has no bytes; else 0."""
    match kind:
        case Primitive(kind="null") | Fixed(size=0):
            return 1
        case Record(fields=fields):
            if id(kind) not in known:
                known[id(kind)] = 0  # while it is found out: a record that contains itself has no value
                inside = [_values_without_bytes(field.type, known) for field in fields]
                known[id(kind)] = 1 + sum(inside) if all(inside) else 0
            return known[id(kind)]
    return 0


def _avro_deserializer(found: TopicSchema) -> Deserialize:
    """Returns fastavro's reader, which Confluent's deserializer uses too.

    That one expands the schema for each record, and does not notice bytes after the value.
    """
    from fastavro import parse_schema, schemaless_reader

    assert found.schema is not None
    known: dict[str, Any] = {}
    for _, used in found.named:
        parse_schema(json.loads(used.text), known)
    schema: Any = parse_schema(json.loads(found.schema.text), known)
    # Confluent's serializers, Java's too, write such data as it is, without its length.
    is_bytes = schema == "bytes" or (isinstance(schema, dict) and schema["type"] == "bytes")

    def read(data: bytes, _: Any) -> Any:
        stream = io.BytesIO(data)
        stream.seek(GUID_BYTES if data[:1] == b"\1" else ID_BYTES)
        value = stream.read() if is_bytes else schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise UndecodableError("bytes are left after the value")
        return value

    return read


# Protobuf


def _message_path(data: bytes) -> tuple[int, ...]:
    """Returns the numbers between the id and the data, which say which message of the file follows."""
    count, place = _zigzag(data, ID_BYTES)
    path = []
    for _ in range(count):
        index, place = _zigzag(data, place)
        path.append(index)
    return tuple(path) or (0,)


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


def _protobuf_deserializer(found: TopicSchema, path: tuple[int, ...], conf: Mapping[str, Any]) -> Deserialize:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    descriptor = last_file(found.files)
    messages = list(descriptor.message_types_by_name.values())
    for place, index in enumerate(path):
        if place:
            messages = list(descriptor.nested_types)
        if not 0 <= index < len(messages):
            raise UndecodableError(f"it has no message with the indexes {list(path)}")
        descriptor = messages[index]
    message = _message_class(descriptor)
    # Without a registry it reads the same bytes: what it would ask for is in the class.
    deserialize: Deserialize = ProtobufDeserializer(message, {**conf, "use.deprecated.format": False})
    return deserialize


def _message_class(descriptor: Any) -> Any:
    """Returns the class of a message. The library recurses as deep as messages have fields of others without a class."""
    from google.protobuf import message_factory

    found = {descriptor.full_name: descriptor}
    waiting = [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in found:
                found[inner.full_name] = inner
                waiting.append(inner)
    return [message_factory.GetMessageClass(one) for one in reversed(found.values())][-1]


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
        return json_value(data)

    return text if name == "json" else number


def named_schema(part: str, data: bytes | None, headers: Headers) -> SchemaKey | None:
    """Returns the schema's id or guid if the bytes look like Confluent's format, whose ids begin at 1."""
    if data is None:
        return None
    try:
        named = id_bytes(part, data, headers)
        key = schema_key(named)
    except NoSchemaIdError:
        return None
    # Without a header, bytes that only look like a guid are common.
    return key if key and (isinstance(key, int) or named is not data) else None


# Text, for people who look at records

Decoders = Mapping[str, SchemaDecoder]
"""Those of key and value; empty without a registry."""

_CONTROLS: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")


@contextmanager
def decoders(topic: str, registry: RegistryConfig, used_by: str) -> Iterator[Decoders]:
    """Yields the decoders of a topic's keys and values. used_by: as for `check_extra`."""
    check_extra("confluent_kafka", used_by)
    with RegistryClient(registry) as client:
        yield {part: SchemaDecoder(topic, part, lambda key: found_schema(key, client)) for part in ("key", "value")}


class DecodedPart(NamedTuple):
    """A key or a value: the schema that it names, its JSON if it was decoded, and why it cannot be decoded, else empty."""

    schema: SchemaKey | None = None
    json: str | None = None
    problem: str = ""


def decoded(part: str, data: bytes | None, headers: Headers, decoders: Decoders, *, ascii_only: bool = False) -> DecodedPart:
    """Returns a part, key or value, decoded by the schema that it names."""
    schema = named_schema(part, data, headers)
    if schema is None or data is None or part not in decoders:
        return DecodedPart(schema)
    try:
        value = decoders[part](data, headers)
        return DecodedPart(schema, as_json(plain(value), ascii_only=ascii_only))
    except UndecodableError as error:
        return DecodedPart(schema, problem=str(error))
    except (ValueError, RecursionError) as error:
        return DecodedPart(schema, problem=f"its value has no JSON: {described(error)}")


def as_text(data: bytes, *, is_cut: bool = False) -> str:
    """Returns UTF-8 as text, and `0x...` for other bytes and for control characters: zeros of a number would be invisible.

    is_cut: whether the last character may be incomplete.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        text = "\0"
    return f"0x{data.hex()}" if _CONTROLS.search(text) else text
