"""delivery.guarantee=exactly-once at brokers that are too old for it: no row is written, and the error says what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.versions import OLDEST
from tests.kafka.witness import read_topic
from tests.spark.frames import numbers, options

pytestmark = pytest.mark.spark

NEEDS = r"exactly-once requires Kafka 3\.8 or newer .*delivery\.guarantee=at-least-once"


STARTS = pytest.mark.whole("starts a broker; the embedded one plays the same release")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("3.7", False), id="3.7"),
        *(pytest.param((each, True), id=f"a real {each}", marks=[pytest.mark.kafka, STARTS]) for each in (OLDEST, "3.7")),
    ],
)
def old_kafka(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    version, is_real = request.param
    made: Brokers = (
        KafkaCluster(version=version, zookeeper=version == OLDEST, heap_mb=256)
        if is_real
        else EmbeddedKafka(in_memory=True, like=version)
    )
    yield made
    made.stop()


def once(kafka: Brokers, topic: str) -> dict[str, str]:
    return options(kafka, topic=topic, delivery__guarantee="exactly-once")


def test_a_batch_job_writes_nothing(spark: SparkSession, old_kafka: Brokers) -> None:
    topic = old_kafka.create_topic("of-a-job", 2)
    writer = numbers(spark, 10).write.format("kafka_sink").options(**once(old_kafka, topic)).mode("append")
    with pytest.raises(PySparkException, match=NEEDS):
        writer.save()

    assert read_topic(old_kafka.bootstrap_servers, topic) == []
    assert not [each for each in old_kafka.metadata().topics if each.startswith("__spark_kafka_sink")]


def test_at_least_once_works(spark: SparkSession, old_kafka: Brokers) -> None:
    topic = old_kafka.create_topic("at-least-once", 2)
    numbers(spark, 10).write.format("kafka_sink").options(**options(old_kafka, topic=topic)).mode("append").save()

    assert len(read_topic(old_kafka.bootstrap_servers, topic)) == 10
