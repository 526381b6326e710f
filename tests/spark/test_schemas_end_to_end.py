"""Values with the schema of a registry: every way of writing sends what Confluent's own deserializer reads."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.registry.apicurio import Apicurio
from tests.spark.frames import options, parquet_stream, run, save
from tests.tiers import whole_but

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


def orders(spark: SparkSession) -> DataFrame:
    """Returns a key and six columns of data."""
    return spark.range(0, ROWS, 1, 2).selectExpr(*ORDERS)


def wanted(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "text": None if n % 3 == 0 else f"ü{n}",
        "amount": Decimal(n) / 4,
        "at": datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC) + datetime.timedelta(microseconds=n),
        "inner": {"x": n, "tags": ["a", str(n)]},
        "by_name": {"k": float(n)},
    }


def read(kafka: Kafka, topic: str, url: str) -> list[tuple[Any, Any]]:
    """Returns the text of each key, and each value as Confluent's deserializer reads it."""
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": url}) as client:
        reader = AvroDeserializer(client)
        return [(one.key, reader(one.value, context)) for one in read_topic(kafka.bootstrap_servers, topic)]


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("is_stream", whole_but([False, True], [True], "a job; its schemas are found in the same way"))
def test_each_way_of_writing_is_read_by_confluents_deserializer(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, apicurio: Apicurio, tmp_path: Path, is_stream: bool
) -> None:
    topic = new_topic(2)
    settings = options(kafka, topic=topic, value__format="avro", schema__registry__url=apicurio.url)
    if is_stream:
        run(parquet_stream(spark, orders(spark), tmp_path).writeStream.format("kafka_sink").options(**settings), tmp_path)
    else:
        save(orders(spark), settings)
    found = read(kafka, topic, apicurio.url)
    assert sorted(found, key=lambda one: int(one[0])) == [(str(n).encode(), wanted(n)) for n in range(ROWS)]
