"""Confluent's deserializer reads what the producer writes with schemas of a real registry, and of Confluent's serializer."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as ConfluentsSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import ProtobufSerializer
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError, RegistryError, SchemaError, SchemaIncompatibleError
from spark_kafka_sink.formats.protobuf.proto_files import base64_of
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText
from tests.formats.protobuf.compiling import SerializedSchemas, file_set, message_class
from tests.kafka.witness import read_topic
from tests.registry.apicurio import Apicurio
from tests.registry.stand_in import Answer, Asked, StandIn

NESTED = """syntax = "proto3";
package shop;
message First { int32 x = 1; }
message Order {
  message Line { string name = 1; optional int32 count = 2; }
  int64 id = 1;
  repeated Line lines = 2;
}
"""
INNER = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
OUTER = 'syntax = "proto3"; package shop; import "shop/item.proto"; message Order { int64 id = 1; Item item = 2; }'


def topic_of(subject: str) -> str:
    return subject.removesuffix("-value")


def read(url: str, topic: str, own: Any, data: bytes) -> Any:
    """Reads with Confluent's deserializer, which asks the registry for the schema of the data."""
    with SerializedSchemas(url, {"shop/item.proto": INNER}) as client:
        reader = ProtobufDeserializer(own, {"use.deprecated.format": False}, client)
        return reader(data, SerializationContext(topic, MessageField.VALUE))


@pytest.mark.java
def test_a_derived_message(apicurio: Apicurio, new_subject: Callable[[], str]) -> None:
    topic = topic_of(new_subject())
    serializer = ProtobufSerializer({"schema.registry.url": apicurio.url, "schema.name": "shop.v1.Order"})
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), False),
            pa.field("text", pa.string()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("lines", pa.list_(pa.struct([pa.field("count", pa.int32())]))),
            pa.field("by_name", pa.map_(pa.string(), pa.float64())),
        ]
    )
    at = datetime.datetime(2026, 1, 1, microsecond=5, tzinfo=datetime.UTC)
    rows = [{"id": 1, "text": "ü", "at": at, "lines": [{"count": 3}, {}], "by_name": [("a", 0.5)]}, None, {"id": 0}]

    found = serializer.serialize_column(topic, pa.array(rows, kind)).to_pylist()
    serializer.close()

    with SchemaRegistryClient({"url": apicurio.url}) as client:
        text = client.get_latest_version(f"{topic}-value").schema.schema_str
    own = message_class(file_set(text), "shop.v1.Order")
    wanted = own(id=1, text="ü", lines=[{"count": 3}, {}], by_name={"a": 0.5})
    wanted.at.FromDatetime(at)
    assert [None if one is None else read(apicurio.url, topic, own, one) for one in found] == [wanted, None, own()]


@pytest.mark.java
@pytest.mark.parametrize("message", ["shop.First", "shop.Order", "shop.Order.Line"])
def test_each_message_of_a_given_schema(apicurio: Apicurio, new_subject: Callable[[], str], message: str) -> None:
    topic = topic_of(new_subject())
    options = {"schema.registry.url": apicurio.url, "schema": NESTED, "schema.message": message}
    serializer = ProtobufSerializer(options)
    own = message_class(file_set(NESTED), message)
    values: dict[str, dict[str, Any]] = {
        "shop.First": {"x": 1},
        "shop.Order": {"id": 7, "lines": [{"name": "a"}]},
        "shop.Order.Line": {"count": 0},
    }
    value = values[message]

    found = serializer.serialize_column(topic, pa.array([value])).to_pylist()

    assert read(apicurio.url, topic, own, found[0]) == own(**value)
    assert found == [serializer.serialize(topic, value)] == [serializer.serialize(topic, own(**value))]
    if message != "shop.Order.Line":  # Confluent's serializer raises KeyError for it with use.latest.version
        with SerializedSchemas(apicurio.url) as client:
            confluents = ConfluentsSerializer(
                own, client, {"use.deprecated.format": False, "use.latest.version": True, "auto.register.schemas": False}
            )
            assert confluents(own(**value), SerializationContext(topic, MessageField.VALUE)) == found[0]
    serializer.close()


@pytest.mark.java
@pytest.mark.parametrize("with_confluents", [False, True])
def test_the_registrys_latest_schema_with_references(
    apicurio: Apicurio, new_subject: Callable[[], str], with_confluents: bool
) -> None:
    """Confluent's serializer registers descriptors in base64; others register text."""
    topic, subject = topic_of(new_subject()), new_subject()
    files = file_set(OUTER, {"shop/item.proto": INNER})
    own = message_class(files, "shop.Order")
    value = own(id=3, item={"name": "x"})
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": apicurio.url}) as client:
        if with_confluents:
            ConfluentsSerializer(own, client, {"use.deprecated.format": False})(value, context)
        else:
            client.register_schema(subject, Schema(INNER, "PROTOBUF"))
            registry = RegistryClient(registry_config({"schema.registry.url": apicurio.url}))
            used = (SchemaReference("shop/item.proto", subject, 1),)
            registry.register(f"{topic}-value", SchemaText("PROTOBUF", OUTER, used))
            registry.close()
    serializer = ProtobufSerializer({"schema.registry.url": apicurio.url, "use.latest.version": True})

    (found,) = serializer.serialize_column(topic, pa.array([{"item": {"name": "x"}, "id": 3}])).to_pylist()
    serializer.close()

    assert read(apicurio.url, topic, own, found) == value


def test_the_producer_writes_single_values_and_columns(stand_in: StandIn) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "value.serializer": "io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer",
            "value.schema": NESTED,
            "value.schema.message": "shop.Order",
            "schema.registry.url": stand_in.url,
        }
        with Producer(settings) as producer:
            producer.send("orders", {"id": 1}, key=b"a")
            producer.send("orders", None, key=b"b")
            producer.flush()
        found = [(one.key, one.value) for one in read_topic(broker.bootstrap_servers, "orders")]
    assert found == [(b"a", b"\0\0\0\0\1\2\2\x08\1"), (b"b", None)]
    sent = [asked.json for asked in stand_in.requests if asked.method == "POST"]
    assert {body["schemaType"] for body in sent} == {"PROTOBUF"}


def test_a_header_has_the_bytes_of_confluents_serializer(stand_in: StandIn) -> None:
    own = message_class(file_set(NESTED), "shop.Order")
    headers: list[tuple[str, str | bytes | None]] = []
    with SerializedSchemas(stand_in.url) as client:
        client.register_schema("orders-value", Schema(NESTED, "PROTOBUF"))
        conf = {"use.deprecated.format": False, "use.latest.version": True, "auto.register.schemas": False}
        theirs = ConfluentsSerializer(own, client, {**conf, "schema.id.serializer": header_schema_id_serializer})
        data = theirs(own(id=1), SerializationContext("orders", MessageField.VALUE, headers))
    options = {"schema.registry.url": stand_in.url, "use.latest.version": True, "schema.id.serializer": "header"}
    ours = ProtobufSerializer({**options, "schema.message": "shop.Order"})
    assert ours.serialize("orders", {"id": 1}) == data == b"\x08\1"
    assert list(ours.headers_of("orders", None)) == headers
    ours.close()


@pytest.mark.parametrize("descriptors", [False, True])
def test_a_message_behind_a_map(stand_in: StandIn, descriptors: bool) -> None:
    text = 'syntax = "proto3"; message A { map<string, string> q = 1; message B {} message D { int32 x = 1; } }'
    files = file_set(text)
    schema = base64_of(files.file[-1].SerializeToString()) if descriptors else text
    ours = ProtobufSerializer({"schema.registry.url": stand_in.url, "schema": schema, "schema.message": "A.D"})

    (data,) = ours.serialize_column("orders", pa.array([{"x": 7}])).to_pylist()
    ours.close()

    own = message_class(files, "A.D")
    assert data[5:8] == (b"\4\0\4" if descriptors else b"\4\0\2")
    assert read(stand_in.url, "orders", own, data) == own(x=7)


def test_subjects_are_named_after_the_message(stand_in: StandIn) -> None:
    options = {"schema.registry.url": stand_in.url, "schema": NESTED, "subject.name.strategy": "topic-record"}
    serializer = ProtobufSerializer({**options, "schema.message": "shop.Order.Line"})
    assert serializer.serialize("orders", {"name": "a"}) == b"\0\0\0\0\1\4\2\0\x0a\1a"
    assert any(asked.path.startswith("/subjects/orders-shop.Order.Line/versions") for asked in stand_in.requests)
    serializer.close()


def test_a_file_with_descriptors_registers_the_file_of_the_message(stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(file_set(NESTED).SerializeToString())
    serializer = ProtobufSerializer({"schema.registry.url": stand_in.url, "schema.file": str(file)})
    assert serializer.serialize("orders", {"x": 1}) == b"\0\0\0\0\1\0\x08\1"
    serializer.close()
    file.write_bytes(file_set(OUTER, {"shop/item.proto": INNER}).SerializeToString())
    serializer = ProtobufSerializer({"schema.registry.url": stand_in.url, "schema.file": str(file)})
    assert serializer.serialize("others", {"id": 1}) == b"\0\0\0\0\3\0\x08\1"
    serializer.close()
    sent = [
        asked for asked in stand_in.requests if asked.method == "POST" and "/subjects/shop%2Fitem.proto/versions" in asked.path
    ]
    assert len([asked for asked in sent if not asked.path.startswith("/compatibility")]) == 1
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        latest = client.latest("others-value")
    assert latest is not None
    assert latest.schema.references == (SchemaReference("shop/item.proto", "shop/item.proto", 1),)


def test_a_text_with_imports_names_its_references(stand_in: StandIn) -> None:
    options = {"schema.registry.url": stand_in.url, "schema": OUTER}
    with pytest.raises(SchemaError, match=r"imports shop/item\.proto: register it, and name it in the option"):
        ProtobufSerializer(options).serialize("orders", {"id": 1})
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        client.register("item", SchemaText("PROTOBUF", INNER))
    references = [{"name": "shop/item.proto", "subject": "item", "version": 1}]
    serializer = ProtobufSerializer({**options, "schema.references": references})
    assert serializer.serialize("orders", {"item": {"name": "x"}}) == b"\0\0\0\0\2\0\x12\3\x0a\1x"
    serializer.close()


def test_an_incompatible_change_names_the_fields(stand_in: StandIn) -> None:
    ProtobufSerializer({"schema.registry.url": stand_in.url, "schema": NESTED}).serialize("orders", {"x": 1})
    changed = NESTED.replace("int32 x = 1;", "string x = 1; int32 y = 2;")

    def checked(asked: Asked) -> Answer | None:
        is_check = asked.path.startswith("/compatibility/")
        return Answer(body={"is_compatible": False, "messages": ["the type of a field changed"]}) if is_check else None

    stand_in.fail(*[checked] * 10)
    for options, error in (({}, SchemaIncompatibleError), ({"auto.register.schemas": False}, RegistryError)):
        serializer = ProtobufSerializer({"schema.registry.url": stand_in.url, "schema": changed, **options})
        with pytest.raises(error) as caught:
            serializer.serialize("orders", {"y": 1})
        assert "x: was int32 = 1, is string = 1" in caught.value.message
        assert "y: new, int32 = 2" in caught.value.message
        serializer.close()


def test_derived_numbers_are_those_of_the_subject(stand_in: StandIn) -> None:
    def written(*names: str, inner: tuple[str, ...] = ("x",)) -> tuple[int, str]:
        """Writes columns, and returns the id of their schema, and the newest one without types."""
        kind = pa.struct(
            [(name, pa.struct([(one, pa.int32()) for one in inner]) if name == "s" else pa.string()) for name in names]
        )
        row = {name: dict.fromkeys(inner, 7) if name == "s" else name for name in names}
        serializer = ProtobufSerializer({"schema.registry.url": stand_in.url, "schema.name": "M"})
        (data,) = serializer.serialize_column("orders", pa.array([row], kind)).to_pylist()
        serializer.close()
        with SchemaRegistryClient({"url": stand_in.url}) as client:
            text = client.get_latest_version("orders-value").schema.schema_str
        return int.from_bytes(data[1:5]), " ".join(re.sub(r"optional \w+ |message \w+ ", "", text.partition("\n\n")[2]).split())

    assert written("first", "s") == (1, "{ { x = 1; } first = 1; s = 2; }")
    assert written("s", "first")[0] == 1
    assert written("new", "s", "first", inner=("y", "x")) == (2, "{ { x = 1; y = 2; } first = 1; s = 2; new = 3; }")
    assert written("z", "s", inner=("y",)) == (
        3,
        '{ reserved 1, 3; reserved "first", "new"; { reserved 1; reserved "x"; y = 2; } s = 2; z = 4; }',
    )
    with pytest.raises(SchemaError, match=r"first: version 3 of .*\n  s\.x: version 3 of .* reserves this name"):
        written("first", "s")
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        client.register(
            "orders-value", SchemaText("PROTOBUF", 'syntax = "proto3"; message N { reserved 9 to max; reserved "z2"; }')
        )
    with pytest.raises(SchemaError) as caught:
        written("z2", "a")
    assert caught.value.message == (
        "value: no schema can be derived: Protobuf cannot hold the columns:\n"
        "  z2: version 4 of subject orders-value reserves this name: rename the column, or give a schema\n"
        "  a: version 4 of subject orders-value leaves no higher number for it: give a schema that has one"
    )


def test_rules_are_refused(stand_in: StandIn) -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto";
    message M { string a = 1 [(confluent.field_meta) = { rules: [{ name: "x" }] }]; }"""
    serializer = ProtobufSerializer({"schema.registry.url": stand_in.url, "schema": text})
    with pytest.raises(SchemaError, match="has rules, which are not supported: a"):
        serializer.serialize("orders", {"a": "secret"})
    serializer.close()


def test_a_schema_of_another_kind_is_refused(stand_in: StandIn) -> None:
    with RegistryClient(registry_config({"schema.registry.url": stand_in.url})) as client:
        client.register("orders-value", SchemaText("AVRO", '"string"'))
    serializer = ProtobufSerializer({"schema.registry.url": stand_in.url, "use.latest.version": True})
    with pytest.raises(SchemaError, match=r"schema 1 is AVRO, and value\.format is protobuf"):
        serializer.serialize("orders", {"a": 1})
    serializer.close()


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(OptionError, match=r"this ProtobufSerializer is for values; make one with is_key=True"):
        Producer(
            {"bootstrap.servers": "localhost:9092", "key.serializer": ProtobufSerializer({"schema.registry.url": "http://r"})}
        )
