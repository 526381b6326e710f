"""Values with the schema of a registry: what Spark writes is what Confluent's own deserializers read."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import SchemaError, SerializationError
from tests.formats.protobuf.compiling import SerializedSchemas, file_set, message_class
from tests.kafka.fixtures import BrokerKind, NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.registry.apicurio import Apicurio
from tests.spark.frames import options, parquet_stream, run, save

pytestmark = [pytest.mark.spark, pytest.mark.java]

ROWS = 40
ORDERS = [
    "string(id) AS key",
    "id",
    "IF(id % 3 = 0, NULL, concat('ü', id)) AS text",
    "cast(id AS decimal(12, 2)) / 4 AS amount",
    "timestamp_micros(1700000000000000 + id) AS at",
    "named_struct('x', int(id), 'tags', array('a', string(id))) AS inner",
    "map('k', double(id)) AS by_name",
]
DAY = "date '2026-01-02' AS day"
GIVEN = """{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "title": "Order",
  "type": "object",
  "properties": {
    "id": {"type": "integer", "minimum": 0, "maximum": 39},
    "text": {"type": "string", "pattern": "^ü[0-9]+$"},
    "amount": {"type": "number", "exclusiveMinimum": -1},
    "at": {"$ref": "#/definitions/moment"},
    "day": {"type": "string", "format": "date"},
    "inner": {"type": "object", "required": ["x", "tags"]}
  },
  "required": ["id", "at"],
  "definitions": {"moment": {"type": "string", "format": "date-time"}}
}"""


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.embedded)])
def broker_kind(request: pytest.FixtureRequest) -> BrokerKind:
    """Embedded brokers: none of these tests is about Kafka."""
    kind: BrokerKind = request.param
    return kind


def orders(spark: SparkSession, *more: str, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(*ORDERS, *more)


def at(n: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC) + datetime.timedelta(microseconds=n)


def read(kafka: Kafka, topic: str, reader: Callable[[bytes | None, SerializationContext], Any]) -> list[tuple[int, Any]]:
    """Returns the number of each key, and each value as one of Confluent's deserializers reads it."""
    context = SerializationContext(topic, MessageField.VALUE)
    found = read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed")
    return sorted(((int(one.key or b""), reader(one.value, context)) for one in found), key=lambda one: one[0])


def test_a_stream_of_avro(spark: SparkSession, kafka: Kafka, new_topic: NewTopic, apicurio: Apicurio, tmp_path: Path) -> None:
    topic = new_topic(2)
    settings = options(kafka, topic=topic, value__format="avro", schema__registry__url=apicurio.url)
    run(parquet_stream(spark, orders(spark), tmp_path).writeStream.format("kafka_sink").options(**settings), tmp_path)
    with SchemaRegistryClient({"url": apicurio.url}) as client:
        found = read(kafka, topic, AvroDeserializer(client))

    def wanted(n: int) -> dict[str, Any]:
        return {
            "id": n,
            "text": None if n % 3 == 0 else f"ü{n}",
            "amount": Decimal(n) / 4,
            "at": at(n),
            "inner": {"x": n, "tags": ["a", str(n)]},
            "by_name": {"k": float(n)},
        }

    assert found == [(n, wanted(n)) for n in range(ROWS)]


def test_a_derived_message_of_protobuf(spark: SparkSession, kafka: Kafka, new_topic: NewTopic, apicurio: Apicurio) -> None:
    topic = new_topic(2)
    settings = options(
        kafka, topic=topic, value__format="protobuf", schema__registry__url=apicurio.url, value__schema__name="a.Order"
    )
    save(orders(spark, "make_dt_interval(0, 0, 0, -id) AS took"), settings)
    with SchemaRegistryClient({"url": apicurio.url}) as client:
        own = message_class(file_set(client.get_latest_version(f"{topic}-value").schema.schema_str or ""), "a.Order")
    with SerializedSchemas(apicurio.url) as schemas:
        found = read(kafka, topic, ProtobufDeserializer(own, {"use.deprecated.format": False}, schemas))

    def wanted(n: int) -> Any:
        text = {} if n % 3 == 0 else {"text": f"ü{n}"}
        made = own(id=n, **text, inner={"x": n, "tags": ["a", str(n)]}, by_name={"k": float(n)})
        made.amount = f"{n / 4:.6f}"
        made.at.FromDatetime(at(n))
        made.took.FromTimedelta(datetime.timedelta(seconds=-n))
        return made

    assert found == [(n, wanted(n)) for n in range(ROWS)]


def test_a_given_json_schema_is_checked_before_any_row_and_for_each_row(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, apicurio: Apicurio
) -> None:
    topic = new_topic(2)
    settings = options(kafka, topic=topic, value__format="json_schema", schema__registry__url=apicurio.url)
    sks.publish(orders(spark, DAY), options=settings | {"value.schema": GIVEN}, progress=False)

    def wanted(n: int) -> dict[str, Any]:
        found = {
            "id": n,
            "text": f"ü{n}",
            "amount": n / 4,
            "at": f"2023-11-14T22:13:20.{n:06}Z",
            "day": "2026-01-02",
            "inner": {"x": n, "tags": ["a", str(n)]},
            "by_name": {"k": float(n)},
        }
        return {name: value for name, value in found.items() if name != "text" or n % 3}

    def validated() -> list[tuple[int, Any]]:
        with SchemaRegistryClient({"url": apicurio.url}) as client:
            return read(kafka, topic, JSONDeserializer(None, schema_registry_client=client))

    assert validated() == [(n, wanted(n)) for n in range(ROWS)]

    latest = settings | {"use.latest.version": "true"}
    with pytest.raises(SchemaError, match=r"\n  id: column string, schema integer, .*\n  at: column missing, schema \$ref"):
        sks.foreach_batch(latest)(spark.range(1).selectExpr("string(id) AS key", "string(id) AS id"), 0)
    once = latest | {"delivery.guarantee": "exactly-once", "commit.log.topic": "json-schema-log"}
    with pytest.raises(SerializationError, match=r"value: row \d+: id: it is above 39"):
        sks.publish(orders(spark, DAY, rows=ROWS + 1), options=once, progress=False)
    assert len(validated()) == ROWS
