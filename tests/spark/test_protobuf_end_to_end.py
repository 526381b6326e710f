"""Values as Protobuf: what Spark writes is what Confluent's own deserializer reads."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from tests.formats.protobuf.compiling import SerializedSchemas, file_set, message_class
from tests.kafka.fixtures import NewTopic
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
    "make_dt_interval(0, 0, 0, -id) AS took",
    "named_struct('x', int(id), 'tags', array('a', string(id))) AS inner",
    "map('k', double(id)) AS by_name",
]


def read(kafka: Kafka, topic: str, url: str, own: Any) -> list[tuple[Any, Any]]:
    """Returns the key of each record, and each value as Confluent's deserializer reads it."""
    context = SerializationContext(topic, MessageField.VALUE)
    with SerializedSchemas(url) as client:
        reader = ProtobufDeserializer(own, {"use.deprecated.format": False}, client)
        return [(one.key, reader(one.value, context)) for one in read_topic(kafka.bootstrap_servers, topic)]


def wanted(own: Any, n: int) -> Any:
    text = {} if n % 3 == 0 else {"text": f"ü{n}"}
    found = own(id=n, **text, inner={"x": n, "tags": ["a", str(n)]}, by_name={"k": float(n)})
    found.amount = f"{n / 4:.6f}"
    found.at.FromDatetime(datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC) + datetime.timedelta(microseconds=n))
    found.took.FromTimedelta(datetime.timedelta(seconds=-n))
    return found


@pytest.mark.spark
@pytest.mark.java
def test_a_derived_message_is_read_by_confluents_deserializer(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, apicurio: Apicurio
) -> None:
    topic = new_topic(2)
    settings = options(
        kafka, topic=topic, value__format="protobuf", schema__registry__url=apicurio.url, value__schema__name="a.Order"
    )
    spark.range(0, ROWS, 1, 2).selectExpr(*ORDERS).write.format("kafka_sink").options(**settings).mode("append").save()

    with SchemaRegistryClient({"url": apicurio.url}) as client:
        own = message_class(file_set(client.get_latest_version(f"{topic}-value").schema.schema_str or ""), "a.Order")
    found = read(kafka, topic, apicurio.url, own)
    assert sorted(found, key=lambda one: int(one[0])) == [(str(n).encode(), wanted(own, n)) for n in range(ROWS)]
