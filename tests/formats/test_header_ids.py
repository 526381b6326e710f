"""The id of a schema in a header, as Confluent's deserializers read it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentsSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import AvroSerializer, JsonSchemaSerializer, Producer, ProtobufSerializer, RecordColumns
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.formats.schema_serializer import id_header
from tests.formats.protobuf.compiling import SerializedSchemas, file_set, message_class
from tests.kafka.witness import Witnessed, read_topic
from tests.registry.apicurio import Apicurio
from tests.registry.stand_in import Answer, Asked, StandIn
from tests.tiers import whole_but

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
STRUCT = pa.struct([pa.field("id", pa.int64(), False)])
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


def order(number: int) -> dict[str, int]:
    """Returns a value of more than 5 bytes, which confluent-kafka's deserializer demands even without a prefix."""
    return {"id": 2**40 + number}


def read(records: list[Witnessed], topic: str, url: str) -> list[tuple[Any, Any]]:
    """Returns keys and values as Confluent's deserializer reads them."""
    found = []
    with SchemaRegistryClient({"url": url}) as client:
        reader = AvroDeserializer(client)
        for one in records:
            contexts = (SerializationContext(topic, field, list(one.headers)) for field in (MessageField.KEY, MessageField.VALUE))
            found.append(tuple(reader(data, each) for data, each in zip((one.key, one.value), contexts, strict=True)))
    return found


def test_a_header_has_the_bytes_of_confluents_serializer(stand_in: StandIn) -> None:
    with SchemaRegistryClient({"url": stand_in.url}) as client:
        theirs = ConfluentsSerializer(client, json.dumps(ORDER), conf={"schema.id.serializer": header_schema_id_serializer})
        headers: list[tuple[str, str | bytes | None]] = []
        data = theirs({"id": 1}, SerializationContext("events", MessageField.VALUE, headers))
    ours = AvroSerializer({"schema.registry.url": stand_in.url, "schema": ORDER, "schema.id.serializer": "header"})
    assert ours.serialize("events", {"id": 1}) == data == b"\2"
    assert list(ours.headers_of("events", None)) == headers
    ours.close()


def test_indexes_of_a_protobuf_message_follow_the_guid() -> None:
    guid = uuid.uuid4()
    assert id_header("key", str(guid), b"\2\2") == ("__key_schema_id", b"\1" + guid.bytes + b"\2\2")


def test_a_nested_protobuf_message_is_read_by_confluents_deserializer(stand_in: StandIn) -> None:
    text = 'syntax = "proto3"; package shop; message First { int32 x = 1; } message Order { message Line { string name = 1; } }'
    options = {"schema.registry.url": stand_in.url, "schema": text, "schema.message": "shop.Order.Line"}
    ours = ProtobufSerializer({**options, "schema.id.serializer": "header"})
    written = ours.serialize_column("events", pa.array([{"name": "a longer name"}, None])).to_pylist()
    headers: list[tuple[str, str | bytes | None]] = list(ours.headers_of("events", pa.struct([("name", pa.string())])))
    ours.close()
    own = message_class(file_set(text), "shop.Order.Line")
    with SerializedSchemas(stand_in.url) as client:
        reader = ProtobufDeserializer(own, {"use.deprecated.format": False}, client)
        found = reader(written[0], SerializationContext("events", MessageField.VALUE, headers))
    assert found == own(name="a longer name")
    assert written == [found.SerializeToString(), None]
    ((_, header),) = headers
    assert isinstance(header, bytes)
    assert header[17:] == b"\4\2\0"


def test_json_is_read_by_confluents_deserializer(stand_in: StandIn) -> None:
    schema = {"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}}
    ours = JsonSchemaSerializer({"schema.registry.url": stand_in.url, "schema": schema, "schema.id.serializer": "header"})
    written = ours.serialize("events", {"id": 1})
    headers: list[tuple[str, str | bytes | None]] = list(ours.headers_of("events", None))
    ours.close()
    with SchemaRegistryClient({"url": stand_in.url}) as client:
        reader = JSONDeserializer(None, schema_registry_client=client)
        assert reader(written, SerializationContext("events", MessageField.VALUE, headers)) == {"id": 1}
    assert written == b'{"id":1}'


@pytest.mark.parametrize("part", whole_but(["key", "value", "both"], ["key", "both"], "the value alone is as the key alone"))
def test_records_and_columns_are_read_by_confluents_deserializer(broker: EmbeddedBroker, stand_in: StandIn, part: str) -> None:
    topic = f"ids-{part}"
    broker.create_topic(topic)
    option = "schema.id.serializer" if part == "both" else f"{part}.schema.id.serializer"
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.serializer": "avro",
        "key.schema": '"string"',
        "value.serializer": "avro",
        "value.schema": ORDER,
        "schema.registry.url": stand_in.url,
        option: "header_schema_id_serializer",
    }
    with Producer(settings) as producer:
        producer.send(topic, order(1), key="key-a", headers=[("own", b"1")])
        producer.send(topic, None, key="key-b")
        producer.flush()
        with producer.scope() as scope:
            keys, values = pa.array(["key-c", "key-d", "key-e"]), pa.array([order(3), None, order(5)], STRUCT)
            scope.append(topic, RecordColumns(num_records=3, key=keys, value=values))
            scope.append(topic, RecordColumns(num_records=1, value=pa.array([order(6)], STRUCT), fixed_headers=(("own", b"2"),)))
            scope.append(topic, RecordColumns(num_records=1, key=pa.array(["key-g"])))
            scope.flush()
    found = read_topic(broker.bootstrap_servers, topic)
    wanted = [
        ("key-a", order(1)),
        ("key-b", None),
        ("key-c", order(3)),
        ("key-d", None),
        ("key-e", order(5)),
        (None, order(6)),
        ("key-g", None),
    ]
    assert read(found, topic, stand_in.url) == wanted
    # As from Confluent's serializers, what is null has no id.
    for record, pair in zip(found, wanted, strict=True):
        with_id = [name for name, one in zip(("key", "value"), pair, strict=True) if one is not None and part in (name, "both")]
        assert {f"__{name}_schema_id" for name in with_id} == {name for name, _ in record.headers} - {"own"}
    assert next(record.headers[0] for record in found if "own" in dict(record.headers)) == ("own", b"1")


def test_a_registry_without_guids_is_an_error_and_nothing_is_registered(stand_in: StandIn) -> None:
    stand_in.has_guids = False
    options = {"schema.registry.url": stand_in.url, "schema.id.serializer": "header"}
    serializer = AvroSerializer({**options, "schema": ORDER})
    wanted = (
        r"value: the registry cannot find schemas by guid, and the schema of value was not registered\. schema\.id\.serializer"
    )
    with pytest.raises(RegistryError, match=wanted):
        serializer.serialize("events", {"id": 1})
    serializer.close()
    with SchemaRegistryClient({"url": stand_in.url}) as client:
        assert client.get_subjects() == []
        client.register_schema("events-value", Schema(json.dumps(ORDER), "AVRO"))
    for more in ({"schema": ORDER}, {"use.latest.version": True}, {"use.schema.id": 1}):
        serializer = AvroSerializer({**options, **more})
        with pytest.raises(RegistryError, match=r"value: the registry sent no guid of schema 1\. schema\.id\.serializer"):
            serializer.serialize("events", {"id": 1})
        serializer.close()


def test_a_login_that_may_not_ask_for_guids_may_write_them(stand_in: StandIn) -> None:
    def refused(asked: Asked) -> Answer | None:
        return Answer(403, {"error_code": 40301, "message": "no"}) if asked.path.startswith("/schemas/guids") else None

    stand_in.fail(*[refused] * 10)
    options = {"schema.registry.url": stand_in.url, "schema.id.serializer": "header", "schema": ORDER}
    serializer = AvroSerializer(options)
    assert serializer.serialize("events", {"id": 1}) == b"\2"
    serializer.close()


@pytest.mark.java
def test_apicurio_has_no_guids_and_gets_no_schema(apicurio: Apicurio) -> None:
    serializer = AvroSerializer({"schema.registry.url": apicurio.url, "schema.id.serializer": "header", "schema": ORDER})
    with pytest.raises(RegistryError, match="the registry cannot find schemas by guid"):
        serializer.serialize("without-guids", {"id": 1})
    serializer.close()
    with SchemaRegistryClient({"url": apicurio.url}) as client:
        assert "without-guids-value" not in client.get_subjects()


def test_a_guid_that_is_not_valid_is_an_error(stand_in: StandIn) -> None:
    stand_in.fail(Answer(body={"schema": json.dumps(ORDER), "guid": "one"}))
    options = {"schema.registry.url": stand_in.url, "schema.id.serializer": "header", "use.schema.id": 7}
    serializer = AvroSerializer({**options, "subject.name.strategy": "record"})
    with pytest.raises(RegistryError, match="value: the guid that the registry sent of schema 7 is not valid"):
        serializer.serialize("events", {"id": 1})
    serializer.close()


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_ids_of_another_topic_are_removed(broker: EmbeddedBroker, stand_in: StandIn, place: str) -> None:
    topic = f"copied-{place}"
    broker.create_topic(topic)
    with SchemaRegistryClient({"url": stand_in.url}) as client:  # a record of another topic, with its id in a header
        theirs = ConfluentsSerializer(client, '"string"', conf={"schema.id.serializer": header_schema_id_serializer})
        brought: list[tuple[str, str | bytes | None]] = []
        theirs("a text", SerializationContext("other", MessageField.VALUE, brought))
    ((name, guid),) = brought
    assert isinstance(guid, bytes)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "value.serializer": "avro",
        "value.schema": ORDER,
        "schema.registry.url": stand_in.url,
        "schema.id.serializer": place,
    }
    headers = pa.array([[(name, guid), ("own", b"1")], None, [(name, guid)]], HEADERS)
    values = pa.array([order(2), None, None], STRUCT)
    with Producer(settings) as producer:
        producer.send(topic, order(1), headers=[("own", b"1"), (name, guid)])
        producer.flush()
        with producer.scope() as scope:
            scope.append(topic, RecordColumns(num_records=3, value=values, headers=headers))
            scope.append(topic, RecordColumns(num_records=1, value=values[:1], fixed_headers=((name, guid),)))
            scope.flush()
    found = read_topic(broker.bootstrap_servers, topic)
    assert [value for _, value in read(found, topic, stand_in.url)] == [order(1), order(2), None, None, order(2)]
    assert all(pair != (name, guid) for record in found for pair in record.headers)
    assert [dict(record.headers).get("own") for record in found] == [b"1", b"1", None, None, None]
