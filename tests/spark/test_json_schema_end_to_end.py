"""Values with a JSON Schema of a registry: what Spark writes is validated by Confluent's own deserializer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.errors import SchemaError, SerializationError
from tests.kafka.fixtures import BrokerKind, NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.registry.apicurio import Apicurio
from tests.spark.frames import options

ROWS = 40
ORDERS = [
    "string(id) AS key",
    "id",
    "IF(id % 3 = 0, NULL, concat('ü', id)) AS text",
    "cast(id AS decimal(12, 2)) / 4 AS amount",
    "timestamp_micros(1700000000000000 + id) AS at",
    "date '2026-01-02' AS day",
    "named_struct('x', int(id), 'tags', array('a', string(id), NULL)) AS inner",
    "map('k', double(id)) AS by_name",
]
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


def orders(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(*ORDERS)


def wanted(n: int) -> dict[str, Any]:
    found = {
        "id": n,
        "text": f"ü{n}",
        "amount": n / 4,
        "at": f"2023-11-14T22:13:20.{n:06}Z",
        "day": "2026-01-02",
        "inner": {"x": n, "tags": ["a", str(n), None]},
        "by_name": {"k": float(n)},
    }
    return {name: value for name, value in found.items() if name != "text" or n % 3}


def read(kafka: Kafka, topic: str, url: str) -> list[tuple[int, Any]]:
    """Returns the number of each key, and each value as Confluent's deserializer reads it. It validates."""
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": url}) as client:
        reader = JSONDeserializer(None, schema_registry_client=client)
        found = read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed")
        return sorted(((int(one.key or b""), reader(one.value, context)) for one in found), key=lambda one: one[0])


@pytest.mark.spark
@pytest.mark.java
def test_a_given_schema_is_checked_before_any_row_and_for_each_row(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, apicurio: Apicurio
) -> None:
    topic = new_topic(2)
    settings = options(kafka, topic=topic, value__format="json_schema", schema__registry__url=apicurio.url)
    sks.publish(orders(spark), options=settings | {"value.schema": GIVEN}, progress=False)
    assert read(kafka, topic, apicurio.url) == [(n, wanted(n)) for n in range(ROWS)]

    latest = settings | {"use.latest.version": "true"}
    with pytest.raises(SchemaError, match=r"\n  id: column string, schema integer, .*\n  at: column missing, schema \$ref"):
        sks.foreach_batch(latest)(spark.range(1).selectExpr("string(id) AS key", "string(id) AS id"), 0)
    once = latest | {"delivery.guarantee": "exactly-once", "commit.log.topic": "json-schema-log"}
    with pytest.raises(SerializationError, match=r"value: row \d+: id: it is above 39"):
        sks.publish(orders(spark, ROWS + 1), options=once, progress=False)
    assert len(read(kafka, topic, apicurio.url)) == ROWS
