"""The producers of Spark's Python workers push their metrics to brokers that want them, unless the option is off (KIP-714)."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.broker import BrokerConfig, ClientMetricsManager, EmbeddedBroker, PushedMetrics
from spark_kafka_sink.protocol.api import ApiKey
from tests.producer.metrics.otlp_witness import read
from tests.spark.frames import numbers

pytestmark = pytest.mark.spark

ROWS, DEADLINE_S = 100, 30.0


def sent(pushes: list[PushedMetrics]) -> float:
    """The records in all pushes, whose totals are differences. What a busy machine made a worker retry counts once."""
    pushed = [read(push.data) for push in list(pushes)]
    sums = {
        kind: sum(point.value for each in pushed for point in each.points if point.name.endswith(f"record.{kind}.total"))
        for kind in ("send", "retry")
    }
    return sums["send"] - sums["retry"]


def save(spark: SparkSession, broker: EmbeddedBroker, **more: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "pushed", **more}
    numbers(spark, ROWS).write.format("kafka_sink").options(**options).mode("append").save()


def test_workers_push_what_their_tasks_sent(spark: SparkSession) -> None:
    pushes: list[PushedMetrics] = []
    manager = ClientMetricsManager(pushes.append, metrics=("org.apache.kafka.producer.topic.record.",), interval_ms=100)
    with EmbeddedBroker(config=BrokerConfig(client_metrics=manager)) as broker:
        broker.create_topic("pushed", 2)
        save(spark, broker)
        deadline = time.monotonic() + DEADLINE_S
        while sent(pushes) < ROWS and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sent(pushes) == ROWS
        assert {push.client_id for push in pushes} == {"spark-kafka-sink"}


def test_workers_push_nothing_if_the_option_is_off(spark: SparkSession) -> None:
    manager = ClientMetricsManager(lambda push: None, interval_ms=100)
    with EmbeddedBroker(config=BrokerConfig(client_metrics=manager)) as broker:
        broker.create_topic("pushed", 2)
        save(spark, broker, **{"kafka.enable.metrics.push": "false"})
        assert broker.faults.seen(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 0
