"""Keys and values are decoded by Confluent's deserializers with schemas that were found before."""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as t

from spark_kafka_sink.broker import EmbeddedRegistry
from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.registry_client import RegisteredSchema, RegistryClient, SchemaReference, SchemaText
from spark_kafka_sink.verify.canonical import ELEMENT, EMPTY, ITEM, MILLISECONDS, UUID, defaults, limits
from spark_kafka_sink.verify.conversion import converter
from spark_kafka_sink.verify.decoding import SchemaDecoder, plain_decoder
from spark_kafka_sink.verify.json_values import as_json, plain
from spark_kafka_sink.verify.record_errors import MisfitError, UndecodableError
from spark_kafka_sink.verify.schema_ids import MAX_SCHEMAS, SchemaKey, TopicSchema, compiled, found_schema, last_file
from tests.registry.stand_in import StandIn

PROTO = """syntax = "proto3";
package shop;
message Other { string x = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, Kind> kinds = 4;
  message Line { string sku = 1; }
}
enum Kind { NONE = 0; SOME = 1; }
"""


def protobuf_schema(text: str) -> TopicSchema:
    schema = SchemaText("PROTOBUF", text)
    return TopicSchema(1, schema, files=compiled(schema, {}))


def decoder(url: str, part: str = "value", kind: str | None = None) -> SchemaDecoder:
    """Asks the registry once for each schema, and not while it decodes."""
    client = RegistryClient(registry_config({"schema.registry.url": url}))
    return SchemaDecoder("t", part, lambda key: found_schema(key, client), kind)


def context(headers: Any = None) -> SerializationContext:
    return SerializationContext("t", MessageField.VALUE, headers)


@pytest.fixture
def confluent(kafka_schema_registry: EmbeddedRegistry) -> Any:
    with SchemaRegistryClient({"url": kafka_schema_registry.url}) as client:
        yield client


def test_json_keeps_every_digit(kafka_schema_registry: EmbeddedRegistry, confluent: Any) -> None:
    text = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "number"}}})
    data = JSONSerializer(text, confluent)({"id": 1}, context())
    assert data is not None
    decode = decoder(kafka_schema_registry.url)
    assert decode(data) == {"id": 1}
    assert as_json(plain(decode(data[:5] + b'{"id": 0.12345678901234567890}'))) == '{"id": 0.12345678901234567890}'
    with pytest.raises(UndecodableError, match=r"^schema 1: id: 'x' is not of type 'number'$"):
        decode(data[:5] + b'{"id": "x"}')


@pytest.mark.parametrize("value", [b"", b"\2", b"\4xyz", b"x" * 200])
def test_a_whole_value_of_avros_bytes_has_no_length(value: bytes) -> None:
    schema = TopicSchema(1, SchemaText("AVRO", '"bytes"'))
    assert SchemaDecoder("t", "value", lambda _: schema)(b"\0\0\0\0\1" + value) == value


@pytest.mark.parametrize("name", ["Order", "Order.Line", "Other"])
def test_protobuf_is_decoded_as_the_message_that_the_indexes_name(
    kafka_schema_registry: EmbeddedRegistry, confluent: Any, name: str
) -> None:
    files = last_file(compiled(SchemaText("PROTOBUF", PROTO), {}))
    descriptor = files.message_types_by_name[name.partition(".")[0]]
    if "." in name:
        descriptor = descriptor.nested_types_by_name[name.partition(".")[2]]
    message: Any = GetMessageClass(descriptor)()
    setattr(message, message.DESCRIPTOR.fields[0].name, 7 if name == "Order" else "seven")
    data = ProtobufSerializer(type(message), confluent, {"use.deprecated.format": False})(message, context())
    assert data is not None

    found = decoder(kafka_schema_registry.url)(data)

    assert found.DESCRIPTOR.full_name == f"shop.{name}"
    assert found.SerializeToString() == message.SerializeToString()
    with pytest.raises(UndecodableError, match="no message with the indexes"):
        decoder(kafka_schema_registry.url)(data[:5] + b"\x02\x20")


def test_enums_and_maps_of_protobuf_become_values_of_columns(kafka_schema_registry: EmbeddedRegistry) -> None:
    with RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url})) as client:
        text = """syntax = "proto3"; enum Kind { NONE = 0; SOME = 1; }
        message R { Kind one = 1; repeated Kind many = 2; map<string, Kind> named = 3;
        optional int32 unset = 4; int32 zero = 5; }"""
        client.register("s", SchemaText("PROTOBUF", text))
    data = b"\0\0\0\0\1\0" + b"\x08\x01" + b"\x12\x02\x01\x00" + b"\x1a\x05\x0a\x01k\x10\x01"
    text_type = pa.string()
    kind = pa.struct({"one": text_type, "many": pa.list_(text_type), "named": pa.map_(text_type, text_type)})
    kind = pa.struct([*kind, ("unset", pa.int32()), ("zero", pa.int32())])
    found = converter(kind, "PROTOBUF")(decoder(kafka_schema_registry.url)(data))
    assert found == {"one": "SOME", "many": ["SOME", "NONE"], "named": [("k", "SOME")], "unset": None, "zero": 0}


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("int64 other = 2;", b"\x10\1"),
        ("double other = 2;", b"\x11" + bytes(7) + b"\x80"),  # -0.0
        ("string other = 2;", b"\x12\1x"),
        ("Kind other = 2; enum Kind { NONE = 0; SOME = 1; }", b"\x10\1"),
        ("repeated string other = 2;", b"\x12\0"),
        ("map<string, int64> other = 2;", b"\x12\0"),
        ("optional int64 other = 2;", b"\x10\0"),
        ("O other = 2; message O {}", b"\x12\0"),
        ("oneof choice { int64 other = 2; }", b"\x10\0"),
    ],
)
def test_a_field_of_protobuf_without_a_column_may_be_left_out_and_nothing_else(field: str, other: bytes) -> None:
    schema = protobuf_schema(f'syntax = "proto3"; message M {{ int64 id = 1; {field} repeated M again = 3; }}')
    convert = converter(pa.struct({"id": pa.int64(), "again": pa.list_(pa.struct({"id": pa.int64()}))}), "PROTOBUF")
    read = SchemaDecoder("t", "value", lambda _: schema)
    prefix, again = b"\0\0\0\0\1\0\x08\1", b"\x1a\2\x08\5"

    assert convert(read(prefix + again)) == {"id": 1, "again": [{"id": 5}]}
    with pytest.raises(MisfitError, match=r"^other has the value .*, but there is no such column"):
        convert(read(prefix + other))
    with pytest.raises(MisfitError, match=r"^again\[0\]\.other has the value .*, but there is no such column"):
        convert(read(prefix + b"\x1a" + bytes([len(other)]) + other))


def test_protobuf_with_imports_is_compiled(kafka_schema_registry: EmbeddedRegistry) -> None:
    with RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url})) as client:
        client.register("inner", SchemaText("PROTOBUF", 'syntax = "proto3"; message Inner { string x = 1; }'))
        text = 'syntax = "proto3"; import "a/inner.proto"; import "google/protobuf/timestamp.proto";'
        text += " message Outer { Inner inner = 1; google.protobuf.Timestamp at = 2; }"
        reference = SchemaReference("a/inner.proto", "inner", 1)
        made = client.register("outer", SchemaText("PROTOBUF", text, (reference,)))
    prefix = b"\0" + made.schema_id.to_bytes(4, "big") + b"\0"
    found = decoder(kafka_schema_registry.url)(prefix + b"\x0a\x03\x0a\x01y\x12\x02\x08\x05")
    assert as_json(plain(found)) == '{"inner": {"x": "y"}, "at": "1970-01-01T00:00:05Z"}'


def test_a_schema_of_protobuf_that_is_not_valid_is_a_problem(kafka_schema_registry: EmbeddedRegistry) -> None:
    with RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url})) as client:
        client.register("s", SchemaText("PROTOBUF", "message ?"))
        assert found_schema(1, client).problem == (
            "its schema 1 cannot be used: the text is not a valid Protobuf schema: line 1:9: Expected message name."
        )


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('{"type":"record","name":"R","fields":[{"name":"s","type":"string"}]}', {"s": "hello"}),
        ('{"type":"record","name":"R","fields":[]}', {}),
        ('"string"', "hello"),
        ('"float"', 1.5),
    ],
)
def test_bytes_after_an_avro_value_are_found(
    kafka_schema_registry: EmbeddedRegistry, confluent: Any, schema: str, value: Any
) -> None:
    data = AvroSerializer(confluent, schema)(value, context())
    assert data is not None
    decode = decoder(kafka_schema_registry.url)
    assert decode(data) == value
    for rest in (b"x", b"\0", b"abc", b"\0" + data):
        with pytest.raises(UndecodableError, match="schema 1: bytes are left after the value"):
            decode(data + rest)


def test_fields_of_another_message_are_found(kafka_schema_registry: EmbeddedRegistry) -> None:
    client = RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url}))
    client.register("t-value", SchemaText("PROTOBUF", 'syntax = "proto3"; message M { M m = 1; }'))
    decode = decoder(kafka_schema_registry.url)
    prefix = b"\0\0\0\0\1\0"
    assert decode(prefix + b"\n\0") is not None
    for damaged in (b"\n\0\x10\1", b"\n\2\x10\1"):
        with pytest.raises(UndecodableError, match="the message has fields that the schema does not have"):
            decode(prefix + damaged)


def test_a_schema_of_another_kind_is_a_problem(kafka_schema_registry: EmbeddedRegistry, confluent: Any) -> None:
    data = AvroSerializer(confluent, '"string"')("a", context())
    assert data is not None
    assert decoder(kafka_schema_registry.url, kind="AVRO")(data) == "a"
    with pytest.raises(UndecodableError, match="schema 1 is AVRO, not JSON"):
        decoder(kafka_schema_registry.url, kind="JSON")(data)


def test_an_id_in_a_header_is_found(kafka_schema_registry: EmbeddedRegistry, confluent: Any) -> None:
    headers: list[tuple[str, Any]] = []
    schema = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "string"}]}'
    conf = {"schema.id.serializer": header_schema_id_serializer}
    data = AvroSerializer(confluent, schema, conf=conf)({"x": "abc"}, context(headers))
    assert data is not None
    assert headers[0][0] == "__value_schema_id"

    assert len(data) < 5
    assert decoder(kafka_schema_registry.url)(data, headers) == {"x": "abc"}

    unknown = [("__value_schema_id", b"\1" + uuid.UUID(int=7).bytes)]
    with pytest.raises(UndecodableError, match="the registry does not have its schema 00000000-0000-0000-0000-000000000007"):
        decoder(kafka_schema_registry.url)(data, unknown)


@pytest.mark.parametrize("guid", [True, False])
@pytest.mark.parametrize(
    ("schema", "payload", "value"),
    [
        ('{"type": "record", "name": "Empty", "fields": []}', b"", {}),
        ('"string"', b"\0", ""),
        ('"int"', b"\x80\x80\x80\x80\x08", 2**30),
        ('"string"', b"\0abcdef", None),  # longer than its value
    ],
    ids=str,
)
def test_short_avro_is_read_if_its_id_is_in_a_header(
    kafka_schema_registry: EmbeddedRegistry, guid: bool, schema: str, payload: bytes, value: Any
) -> None:
    with RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url})) as client:
        made = client.register("s", SchemaText("AVRO", schema))
    headers = [("__value_schema_id", _header(made, guid=guid))]
    if value is None:
        with pytest.raises(UndecodableError, match="of the header __value_schema_id: bytes are left after the value"):
            decoder(kafka_schema_registry.url)(payload, headers)
    else:
        assert decoder(kafka_schema_registry.url)(payload, headers) == value


@pytest.mark.parametrize("guid", [True, False])
def test_an_empty_protobuf_message_is_read_if_its_id_is_in_a_header(kafka_schema_registry: EmbeddedRegistry, guid: bool) -> None:
    with RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url})) as client:
        made = client.register("s", SchemaText("PROTOBUF", PROTO))
    header = _header(made, guid=guid)
    decode = decoder(kafka_schema_registry.url)
    assert decode(b"", [("__value_schema_id", header + b"\0")]).DESCRIPTOR.full_name == "shop.Other"
    assert decode(b"", [("__value_schema_id", header + b"\x02\x02")]).DESCRIPTOR.full_name == "shop.Order"


def _header(made: RegisteredSchema, *, guid: bool) -> bytes:
    assert made.guid is not None
    return b"\1" + uuid.UUID(made.guid).bytes if guid else b"\0" + made.schema_id.to_bytes(4, "big")


PAYLOADS = {"prefix": b"\0\0\0\0\2\x0e", "payload": b"\x06abc"}
FIRST, SECOND = b"\0\0\0\0\1", b"\0\0\0\0\2"


@pytest.mark.parametrize(
    ("headers", "payload"),
    [
        ([("__value_schema_id", FIRST)], PAYLOADS["payload"]),
        # The header comes first, and the prefix is data: no text of 5 bytes.
        ([("__value_schema_id", FIRST)], PAYLOADS["prefix"]),
        ([("__value_schema_id", FIRST), ("__value_schema_id", SECOND)], PAYLOADS["payload"]),
        ([("__value_schema_id", None)], PAYLOADS["prefix"]),
        ([("__value_schema_id", None), ("__value_schema_id", FIRST)], PAYLOADS["prefix"]),
        ([("__key_schema_id", FIRST)], PAYLOADS["prefix"]),
        ([("__value_schema_id", b"")], PAYLOADS["prefix"]),
        ([], PAYLOADS["prefix"]),
    ],
)
def test_the_id_is_taken_from_where_confluents_deserializers_take_it(
    kafka_schema_registry: EmbeddedRegistry, headers: list[tuple[str, bytes | None]], payload: bytes
) -> None:
    with RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url})) as client:
        client.register("t-value", SchemaText("AVRO", '"string"'))
        client.register("other", SchemaText("AVRO", '"int"'))
    named = SchemaId("AVRO")
    try:
        rest = dual_schema_id_deserializer(payload, context(headers), named).read()
    except Exception:
        with pytest.raises(UndecodableError, match="has a header __value_schema_id that does not begin with a schema id"):
            decoder(kafka_schema_registry.url)(payload, headers)
        return
    values: dict[int, dict[bytes, Any]] = {1: {b"\x06abc": "abc"}, 2: {b"\x0e": 7}}
    expected = values[named.id or 0].get(rest)
    decode = decoder(kafka_schema_registry.url)
    assert decode.schema(payload, headers).key == named.id
    if expected is not None:
        assert decode(payload, headers) == expected
        return
    with pytest.raises(UndecodableError, match=r"^schema 1 of the header __value_schema_id: bytes are left after the value"):
        decode(payload, headers)


def test_a_topic_of_too_many_ids_does_not_fill_the_memory_or_the_registry() -> None:
    asked: list[SchemaKey] = []

    def find(key: SchemaKey) -> TopicSchema:
        asked.append(key)
        return TopicSchema(key, None, problem="unknown")

    decode = SchemaDecoder("t", "value", find)
    for number in range(MAX_SCHEMAS):
        with pytest.raises(UndecodableError, match="unknown"):
            decode(b"\0" + number.to_bytes(4, "big"))
    with pytest.raises(UndecodableError, match="its schema 5000 was not looked up: the topic names over 1,000 schemas"):
        decode(b"\0" + (5000).to_bytes(4, "big"))
    assert asked == list(range(MAX_SCHEMAS))


def test_the_registry_is_asked_once_for_each_schema(stand_in: StandIn) -> None:
    decode = decoder(stand_in.url)
    for _ in range(3):
        with pytest.raises(UndecodableError, match="the registry does not have its schema 5"):
            decode(b"\0\0\0\0\x05abcdef")
    assert len(stand_in.requests) == 1


def test_a_missing_library_is_named(kafka_schema_registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    with RegistryClient(registry_config({"schema.registry.url": kafka_schema_registry.url})) as client:
        client.register("s", SchemaText("AVRO", '"int"'))
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(InstallationError, match=r"pip install 'spark-kafka-sink\[verify\]'"):
        decoder(kafka_schema_registry.url)(b"\0\0\0\0\1\1")


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [
        ("short", b"\xff\xff", -1),
        ("integer", b"\0\0\0\7", 7),
        ("long", b"\0" * 7 + b"\7", 7),
        ("float", b"\x3f\x80\0\0", 1.0),
        ("double", b"\x3f\xf0" + b"\0" * 6, 1.0),
        ("boolean", b"\1", True),
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
    ],
)
def test_formats_of_kafkas_serializers_are_decoded(name: str, data: bytes, wanted: Any) -> None:
    assert plain_decoder(name)(data, ()) == wanted
    with pytest.raises(UndecodableError):
        plain_decoder(name)(data[:-1], ())


def column(shape: Any) -> t.DataType:
    """Returns a type: a dict is a struct, a list an array, a tuple a map, anything else text."""
    match shape:
        case dict():
            return t.StructType([t.StructField(name, column(one)) for name, one in shape.items()])
        case [one] if isinstance(shape, list):
            return t.ArrayType(column(one))
        case (one,):
            return t.MapType(t.StringType(), column(one))
        case _:
            return t.StringType()


def test_what_a_schema_cannot_hold_is_known_by_path() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "u", "type": {"type": "string", "logicalType": "uuid"}}]}
    fields = [
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "fine", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "no_column", "type": {"type": "array", "items": inner}},
        {"name": "lines", "type": {"type": "array", "items": "Inner"}},
        {"name": "named", "type": {"type": "map", "values": "n.Inner"}},
        {"name": "again", "type": ["null", "R"]},
        {"name": "either", "type": ["null", {"type": "int", "logicalType": "time-millis"}, "string", "Inner"]},
        {"name": "only", "type": ["null", {"type": "int", "logicalType": "time-millis"}, "Inner"]},
    ]
    text = json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": fields})
    avro = TopicSchema(1, SchemaText("AVRO", text))
    plain_fields = {"at": "", "fine": "", "lines": [{"u": ""}], "named": ({"u": ""},), "again": {"at": ""}}
    either = {"either": {"member0": "", "member1": "", "member2": {"u": ""}}, "only": {"u": ""}}
    assert limits([avro], column(plain_fields | either)) == {
        ("at",): MILLISECONDS,
        ("lines", ELEMENT, "u"): UUID,
        ("named", ITEM, "u"): UUID,
        ("again", "at"): MILLISECONDS,
        ("either",): MILLISECONDS,
        ("either", "member0"): MILLISECONDS,
        ("either", "member2", "u"): UUID,
        ("only",): MILLISECONDS,
        ("only", "u"): UUID,
    }

    protobuf = protobuf_schema(PROTO)
    orders = column({"lines": [{"sku": ""}], "kinds": ("",), "id": ""})
    assert limits([protobuf], orders) == {}
    assert limits([protobuf], orders, "shop.Order") == {("lines",): EMPTY, ("kinds",): EMPTY}


def test_what_a_recursive_schema_cannot_hold_is_known_as_deep_as_the_column() -> None:
    kind = column({"inner": [{"inner": [{"inner": [""]}], "m": ({"inner": [""]},)}]})
    paths = [("inner",), ("inner", ELEMENT, "inner"), ("inner", ELEMENT, "inner", ELEMENT, "inner")]
    in_map = ("inner", ELEMENT, "m")
    text = 'syntax = "proto3"; message R { repeated R inner = 1; map<string, R> m = 2; }'
    assert limits([protobuf_schema(text)], kind) == dict.fromkeys([*paths, in_map, (*in_map, ITEM, "inner")], EMPTY)


@pytest.mark.parametrize("levels", [100, 1500])
def test_messages_with_two_fields_of_the_next_message_take_no_exponential_time(levels: int) -> None:
    text = "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; int32 c = 3; }}" for n in range(levels))
    schema = protobuf_schema(f'syntax = "proto3"; {text} message M{levels} {{ repeated int32 a = 1; }}')
    assert limits([schema], column({"a": {"b": {"c": ""}}, "c": ""})) == {}
    assert SchemaDecoder("t", "value", lambda _: schema)(b"\0\0\0\0\1\0\x18\1").c == 1


def test_avro_records_with_two_fields_of_the_next_record_take_no_exponential_time() -> None:
    kind: Any = {"type": "long", "logicalType": "timestamp-millis"}
    for number in reversed(range(100)):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{number + 1}" if number < 99 else "long"}]
        kind = {"type": "record", "name": f"R{number}", "fields": fields}
    avro = TopicSchema(1, SchemaText("AVRO", json.dumps(kind)))
    assert limits([avro], column({"b": {"b": {"b": ""}}})) == {}


def test_a_union_of_records_that_name_each_other_takes_no_exponential_time() -> None:
    """Each level has two branches with the field of the column, which is 60 levels deep."""
    second = {"type": "record", "name": "S", "fields": [{"name": "a", "type": ["null", "R", "S"]}]}
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R", second]}]})
    rows: Any = ""
    for _ in range(60):
        rows = {"a": rows}
    assert limits([TopicSchema(1, SchemaText("AVRO", text))], column(rows)) == {}


def test_two_fields_of_one_record_have_its_defaults() -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "country", "type": "string", "default": "DE"}]}
    fields = [{"name": "billing", "type": address}, {"name": "shipping", "type": "Address"}]
    order = json.dumps({"type": "record", "name": "Order", "fields": fields})
    known = {"country": "DE"}
    assert defaults(TopicSchema(1, SchemaText("AVRO", order))) == {"billing": known, "shipping": known}


def test_values_of_avro_without_bytes_take_no_memory() -> None:
    kind: Any = "null"
    for number in range(30):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{number - 1}" if number else "null"}]
        kind = {"type": "record", "name": f"R{number}", "fields": fields}
    count = bytes.fromhex("80c0caf384a3")  # of an array with 10^12 elements, as a varint
    for items in ("null", {"type": "fixed", "name": "F", "size": 0}, {"type": "record", "name": "E", "fields": []}):
        schema = SchemaText("AVRO", json.dumps({"type": "array", "items": items}))
        known: dict[SchemaKey, TopicSchema] = {1: TopicSchema(1, schema)}
        with pytest.raises(UndecodableError, match=r"schema 1: array of .*: its elements have no bytes"):
            SchemaDecoder("t", "value", known.__getitem__)(b"\0\0\0\0\1" + count + b"\2")
    doubled = TopicSchema(1, SchemaText("AVRO", json.dumps(kind)))
    with pytest.raises(UndecodableError, match=r"schema 1: record R.* has more than 1,000 values without a byte"):
        SchemaDecoder("t", "value", lambda _: doubled)(b"\0\0\0\0\1")


@pytest.mark.parametrize("levels", [250, 400, 3000])
def test_schemas_that_are_nested_deeply_are_no_error(levels: int) -> None:
    """Python's parser of JSON reads at most about 1,000 levels, and an Avro record has three of them."""
    array = '{"type": "array", "items": ' * levels + '"long"' + "}" * levels
    starts = (f'{{"type": "record", "name": "R{n}", "fields": [{{"name": "a", "type": ' for n in range(levels))
    record = "".join(starts) + '"long"' + "}]}" * levels
    union = "[" * levels + '"long"' + "]" * levels
    for text in (array, record, union):
        avro = TopicSchema(1, SchemaText("AVRO", text))
        assert limits([avro], column({"a": [""]})) == {}
        assert defaults(avro) == {}
    fields = '[{"name": "b", "type": "int", "default": 3}, {"name": "a", "type": '
    avro = TopicSchema(1, SchemaText("AVRO", f'{{"type": "record", "name": "T", "fields": {fields}{record}}}]}}'))
    assert defaults(avro) == ({"b": 3} if levels == 250 else {})
    objects = '{"type": "object", "properties": {"a": ' * levels + "{}" + "}}" * levels
    json_schema = TopicSchema(1, SchemaText("JSON", f'{{"properties": {{"b": {{"default": 3}}, "a": {objects}}}}}'))
    assert defaults(json_schema) == ({"b": 3} if levels < 3000 else {})
