"""The producer's JSON Schema serializer with a registry: confluent-kafka's JSONDeserializer validates what it writes."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import JsonSchemaSerializer, Producer, RecordColumns
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.errors import SchemaError, SchemaIncompatibleError, SerializationError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText
from tests.kafka.witness import read_topic
from tests.registry.apicurio import Apicurio
from tests.registry.stand_in import StandIn

UTC = datetime.UTC
ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "region": {"enum": ["eu", "us"]}},
    "required": ["id"],
    "additionalProperties": False,
}
ORDERS = pa.array([{"id": 1, "region": "eu"}, None, {"id": 3, "region": None}])
READ = [{"id": 1, "region": "eu"}, None, {"id": 3}]


class Witness:
    """confluent-kafka's client of a registry, and its deserializer."""

    def __init__(self, url: str) -> None:
        self.client = SchemaRegistryClient({"url": url})
        self._reader = JSONDeserializer(None, schema_registry_client=self.client)

    def read(self, topic: str, values: list[bytes | None]) -> list[Any]:
        return [self._reader(value, SerializationContext(topic, MessageField.VALUE)) for value in values]


@pytest.fixture
def witness(apicurio: Apicurio) -> Iterator[Witness]:
    found = Witness(apicurio.url)
    with found.client:
        yield found


@pytest.fixture
def topic(new_subject: Callable[[], str]) -> str:
    return new_subject().removesuffix("-value")


def written(url: str, topic: str, column: pa.Array, **options: Any) -> list[bytes | None]:
    given = {name.replace("__", "."): value for name, value in options.items()}
    serializer = JsonSchemaSerializer({"schema.registry.url": url, **given})
    try:
        found: list[bytes | None] = serializer.serialize_column(topic, column).to_pylist()
        return found
    finally:
        serializer.close()


@pytest.mark.java
def test_a_derived_schema_is_registered_and_readers_validate_with_it(apicurio: Apicurio, witness: Witness, topic: str) -> None:
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("amount", pa.decimal128(9, 2)),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("day", pa.date32()),
            pa.field("blob", pa.binary()),
            pa.field("inner", pa.struct([("tags", pa.list_(pa.string()))])),
            pa.field("by_name", pa.map_(pa.string(), pa.float64())),
        ]
    )
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    row = {"id": 2**60, "amount": Decimal("1.50"), "at": at, "day": at.date(), "blob": b"\xff", "by_name": [("k", 0.5)]}
    rows = [row | {"inner": {"tags": ["ü", None]}}, {"id": 2}, None]
    expected = {
        "id": 2**60,
        "amount": 1.5,
        "at": "2026-01-02T03:04:05.000006Z",
        "day": "2026-01-02",
        "blob": "/w==",
        "inner": {"tags": ["ü", None]},
        "by_name": {"k": 0.5},
    }
    assert witness.read(topic, written(apicurio.url, topic, pa.array(rows, kind))) == [expected, {"id": 2}, None]
    latest = witness.client.get_latest_version(f"{topic}-value").schema
    assert latest.schema_type == "JSON"
    assert json.loads(latest.schema_str or "")["title"] == re.sub(r"\W", "_", f"{topic}_value")


@pytest.mark.java
def test_a_given_schema_and_the_latest_one_are_written_with(apicurio: Apicurio, witness: Witness, topic: str) -> None:
    given = written(apicurio.url, topic, ORDERS, schema=ORDER)
    assert witness.read(topic, given) == READ
    assert written(apicurio.url, topic, ORDERS, use__latest__version=True) == given
    assert written(apicurio.url, topic, ORDERS, use__schema__id=int.from_bytes((given[0] or b"")[1:5])) == given
    by_title = written(apicurio.url, topic, ORDERS, schema=ORDER, subject__name__strategy="topic-record")
    assert witness.read(topic, by_title) == READ
    assert f"{topic}-Order" in witness.client.get_subjects()


@pytest.mark.java
def test_a_schema_may_refer_to_others_of_the_registry(apicurio: Apicurio, witness: Witness, topic: str) -> None:
    regions = {"$schema": ORDER["$schema"], "definitions": {"region": {"type": "string", "maxLength": 2}}}
    order = ORDER | {"properties": {"id": {"type": "integer"}, "region": {"$ref": "regions.json#/definitions/region"}}}
    with RegistryClient(registry_config({"schema.registry.url": apicurio.url})) as client:
        client.register(f"{topic}-regions", SchemaText("JSON", json.dumps(regions)))
        used = (SchemaReference("regions.json", f"{topic}-regions", 1),)
        client.register(f"{topic}-value", SchemaText("JSON", json.dumps(order), used))
    assert witness.read(topic, written(apicurio.url, topic, ORDERS, use__latest__version=True)) == READ
    given = [{"name": "regions.json", "subject": f"{topic}-regions", "version": 1}]
    assert witness.read(topic, written(apicurio.url, f"{topic}-2", ORDERS, schema=order, schema__references=given)) == READ
    bad = pa.array([{"id": 1, "region": "eu"}, {"id": 2, "region": "europe"}])
    with pytest.raises(SerializationError, match=r"row 1: region: it has more than 2 characters"):
        written(apicurio.url, topic, bad, use__latest__version=True)
    serializer = JsonSchemaSerializer({"schema.registry.url": apicurio.url, "use.latest.version": True})
    assert witness.read(topic, [serializer.serialize(topic, {"id": 1, "region": "eu"})]) == READ[:1]
    with pytest.raises(SerializationError, match=r"region: it has more than 2 characters"):
        serializer.serialize(topic, {"id": 1, "region": "europe"})
    serializer.close()


@pytest.mark.java
def test_an_incompatible_change_names_what_differs(apicurio: Apicurio, witness: Witness, topic: str) -> None:
    written(apicurio.url, topic, ORDERS, schema=ORDER)
    witness.client.set_config(f"{topic}-value", ServerConfig.from_dict({"compatibility": "BACKWARD"}))
    changed = ORDER | {"properties": {"id": {"type": "string"}, "region": {"enum": ["eu"]}}, "required": ["id", "region"]}
    with pytest.raises(SchemaIncompatibleError) as caught:
        written(apicurio.url, topic, pa.array([{"id": "1", "region": "eu"}]), schema=changed)
    assert caught.value.facts["fields"] == (
        "id: was integer, required, is string, required",
        'region: was enum ["eu", "us"], not required, is enum ["eu"], required',
    )
    assert len(witness.client.get_versions(f"{topic}-value")) == 1


def test_records_and_columns_of_a_producer_are_json_with_the_id_before(stand_in: StandIn) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "key.serializer": "json-schema",
            "key.schema": {"type": "string", "maxLength": 3},
            "value.serializer": "io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer",
            "value.schema": ORDER,
            "schema.registry.url": stand_in.url,
        }
        with Producer(settings) as producer:
            producer.send("orders", {"id": 1, "region": "eu"}, key="a")
            producer.send("orders", None, key="b")
            with pytest.raises(SerializationError, match=r"topic orders: value: region: it is not one of"):
                producer.send("orders", {"id": 1, "region": "asia"})
            with producer.scope() as scope:
                columns = RecordColumns(num_records=3, key=pa.array(["c", "d", "e"]), value=ORDERS)
                scope.append("orders", columns)
                scope.flush()
                bad = pa.array([{"id": 1, "region": "eu"}, {"id": 2, "region": "asia"}])
                with pytest.raises(SerializationError, match=r"topic orders: value: row 1: region: it is not one of the values"):
                    scope.append("orders", RecordColumns(num_records=2, value=bad))
        assert sorted((one.key, one.value) for one in read_topic(broker.bootstrap_servers, "orders") if one.value) == [
            (b'\0\0\0\0\1"a"', b'\0\0\0\0\2{"id":1,"region":"eu"}'),
            (b'\0\0\0\0\1"c"', b'\0\0\0\0\2{"id":1,"region":"eu"}'),
            (b'\0\0\0\0\1"e"', b'\0\0\0\0\2{"id":3}'),
        ]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('{"type": "strin"}', r"option value\.schema: the schema is not a valid JSON Schema: #/type"),
        ({"type": "object", "if": {}}, r"value: option value\.schema: 1 field of .*\n  the value: column .* keyword if at #/if"),
        ({"confluent:rules": [{"name": "x"}]}, r"option value\.schema: the schema has rules, which are not supported"),
    ],
)
def test_a_schema_that_is_refused_is_not_registered(stand_in: StandIn, schema: Any, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        written(stand_in.url, "orders", ORDERS, schema=schema)
    assert not any(asked.method == "POST" and asked.path.endswith("/versions") for asked in stand_in.requests)
