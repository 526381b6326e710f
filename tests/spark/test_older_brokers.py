"""delivery.guarantee=exactly-once at brokers that are too old for it: no row is written, and the error says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.kafka.brokers import Brokers
from tests.kafka.cluster import KafkaCluster
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import BrokerKind
from tests.kafka.versions import OLDEST
from tests.kafka.witness import read_topic
from tests.spark.frames import numbers, options
from tests.tiers import whole_but

pytestmark = pytest.mark.spark

OLD = ("2.1", "3.7")
NEEDS = r"exactly-once requires Kafka 3\.8 or newer .*delivery\.guarantee=at-least-once"


@pytest.fixture(scope="module")
def _old() -> Iterator[dict[tuple[BrokerKind, str], Brokers]]:
    """Those that a test has asked for: each is started once."""
    made: dict[tuple[BrokerKind, str], Brokers] = {}
    yield made
    for each in made.values():
        each.stop()


@pytest.fixture(params=whole_but(OLD, ["3.7"], "the same refusal, by a cluster of its own"))
def old(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def old_kafka(broker_kind: BrokerKind, old: str, _old: dict[tuple[BrokerKind, str], Brokers]) -> Brokers:
    key = broker_kind, old
    if key not in _old:
        if broker_kind == "kafka":
            _old[key] = KafkaCluster(version=old, zookeeper=old == OLDEST, heap_mb=256)
        else:
            _old[key] = EmbeddedKafka(in_memory=True, like=old)
    return _old[key]


def once(kafka: Brokers, topic: str) -> dict[str, str]:
    return options(kafka, topic=topic, delivery__guarantee="exactly-once")


def test_a_batch_job_writes_nothing(spark: SparkSession, old_kafka: Brokers) -> None:
    topic = old_kafka.create_topic("of-a-job", 2)
    writer = numbers(spark, 10).write.format("kafka_sink").options(**once(old_kafka, topic)).mode("append")
    with pytest.raises(PySparkException, match=NEEDS):
        writer.save()

    assert read_topic(old_kafka.bootstrap_servers, topic) == []
    assert not [each for each in old_kafka.metadata().topics if each.startswith("__spark_kafka_sink")]


def test_a_stream_writes_nothing(spark: SparkSession, old_kafka: Brokers, tmp_path: Path) -> None:
    topic = old_kafka.create_topic("of-a-stream", 2)
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "rows.json").write_text('{"key": "a", "value": "b"}\n')
    df = spark.readStream.schema(numbers(spark, 1).schema).json(str(tmp_path / "input"))
    writer = df.writeStream.format("kafka_sink").options(**once(old_kafka, topic))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=NEEDS):
        query.awaitTermination()

    assert read_topic(old_kafka.bootstrap_servers, topic) == []


def test_at_least_once_works(spark: SparkSession, old_kafka: Brokers) -> None:
    topic = old_kafka.create_topic("at-least-once", 2)
    numbers(spark, 10).write.format("kafka_sink").options(**options(old_kafka, topic=topic)).mode("append").save()

    assert len(read_topic(old_kafka.bootstrap_servers, topic)) == 10
