"""The producers of Spark's Python workers push their metrics to brokers that want them, unless the option is off (KIP-714)."""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.broker import BrokerConfig, ClientMetricsManager, EmbeddedBroker, PushedMetrics
from tests.producer.metrics.otlp_witness import read
from tests.spark.frames import numbers
from tests.waiting import until

ROWS, DEADLINE_S = 100, 30.0


def totals(pushes: list[PushedMetrics]) -> dict[str, float]:
    """The differences of all pushes of all workers, added up."""
    pushed = [read(push.data) for push in list(pushes)]
    return {
        kind: sum(point.value for each in pushed for point in each.points if point.name.endswith(f"record.{kind}.total"))
        for kind in ("send", "retry")
    }


def sent(pushes: list[PushedMetrics]) -> float:
    """The rows in all pushes. `record.send.total` counts a row again each time it is sent again, as in Java."""
    found = totals(pushes)
    return found["send"] - found["retry"]


def wait_until_sent(pushes: list[PushedMetrics]) -> None:
    until(lambda: totals(pushes), lambda _: sent(pushes) >= ROWS, "all rows sent")
    assert sent(pushes) == ROWS, totals(pushes)


def save(spark: SparkSession, broker: EmbeddedBroker, **more: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "pushed", **more}
    numbers(spark, ROWS).write.format("kafka_sink").options(**options).mode("append").save()


@pytest.mark.spark
@pytest.mark.whole("6 s; tests/producer/metrics/test_client_telemetry.py pushes")
def test_workers_push_what_their_tasks_sent(spark: SparkSession) -> None:
    pushes: list[PushedMetrics] = []
    manager = ClientMetricsManager(pushes.append, metrics=("org.apache.kafka.producer.topic.record.",), interval_ms=100)
    with EmbeddedBroker(config=BrokerConfig(client_metrics=manager)) as broker:
        broker.create_topic("pushed", 2)
        save(spark, broker)
        wait_until_sent(pushes)
        assert {push.client_id for push in pushes} == {"spark-kafka-sink"}


def test_a_task_whose_option_is_off_pushes_nothing() -> None:
    pushes: list[PushedMetrics] = []
    manager = ClientMetricsManager(pushes.append, metrics=("",), interval_ms=100)
    with EmbeddedBroker(config=BrokerConfig(client_metrics=manager)) as broker:
        broker.create_topic("pushed")
        for name, is_on in (("off", "false"), ("on", "true")):
            options = {"kafka.client.id": name, "kafka.enable.metrics.push": is_on}
            options |= {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "pushed"}
            sks.partition_writer(options)(iter([Row(value="7")]))
        until(lambda: {push.client_id for push in list(pushes)}, lambda found: "on" in found, "a push")
    assert {push.client_id for push in pushes} == {"on"}
