"""Producer.metrics() on real Kafka: what it says is what was sent, and what Java's producer says of the same records."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from math import isnan
from multiprocessing.queues import SimpleQueue

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.metrics.metric_table import CONSTANT_METRICS
from spark_kafka_sink.producer.metrics.sender_metrics import ProducerMetrics
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.producer.metrics.golden_metrics import golden_names, java_producer, names
from tests.tiers import whole_but

pytestmark = pytest.mark.slow

RECORDS = 2000
SETTINGS: dict[str, object] = {"batch.size": 16384, "linger.ms": 100}


def records(count: int = RECORDS) -> RecordColumns:
    """As GoldenMetrics.java sends them."""
    return RecordColumns(count, key=pa.array([bytes(10)] * count), value=pa.array([bytes(100)] * count))


def send(kafka: Kafka, topic: str, **settings: object) -> tuple[ProducerMetrics, DeliveryReport]:
    options = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    with Producer({"bootstrap.servers": kafka.bootstrap_servers, **options}) as producer, producer.scope() as scope:
        scope.append(topic, records())
        scope.flush(30)
        return producer.metrics(), scope.report()


@pytest.mark.java
@pytest.mark.parametrize("codec", whole_but(["none", "zstd"], ["none"], "Java's compression; 6 s"))
def test_the_figures_agree_with_javas_producer_on_the_same_records(kafka: Kafka, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(1)
    metrics, _ = send(kafka, topic, compression_type=codec)
    javas = java_producer(kafka.bootstrap_servers, topic, RECORDS, batch_size=16384, linger_ms=100, compression_type=codec)
    assert names(javas) == golden_names()
    java, java_topic = javas["producer-metrics", "."], javas["producer-topic-metrics", topic]
    ours, our_topic = metrics["producer-metrics"], metrics["producer-topic-metrics"][topic]
    for name in ("record-send-total", "record-error-total", "record-retry-total", "requests-in-flight"):
        assert ours[name] == java[name]
    for name in ("buffer-total-bytes", "waiting-threads", "produce-throttle-time-max"):
        assert ours[name] == java[name]
    assert our_topic["record-send-total"] == java_topic["record-send-total"]
    # Java's estimate takes the longest that three of a record's numbers can be, 17 bytes more than the shortest.
    assert ours["record-size-max"] <= java["record-size-max"] <= ours["record-size-max"] + 17
    for name in (*CONSTANT_METRICS, *(name for name in ours if name.startswith("txn-"))):
        assert ours[name] == pytest.approx(java[name], nan_ok=True)
    if codec == "none":
        assert our_topic["byte-total"] == pytest.approx(java_topic["byte-total"], rel=0.01)
        assert ours["batch-size-max"] == pytest.approx(java["batch-size-max"], rel=0.05)
        assert ours["compression-rate-avg"] == java["compression-rate-avg"] == 1
    else:
        assert 0 < ours["compression-rate-avg"] < 0.2
        assert 0 < java["compression-rate-avg"] < 0.2


def test_the_network_carried_the_batches_and_every_request_was_answered(kafka: Kafka, new_topic: NewTopic) -> None:
    metrics, report = send(kafka, new_topic(1))
    producer, nodes = metrics["producer-metrics"], metrics["producer-node-metrics"]
    assert producer["outgoing-byte-total"] > report.compressed_bytes
    assert producer["request-total"] == producer["response-total"] >= report.requests
    assert producer["request-size-max"] > producer["batch-size-max"]
    assert producer["request-size-avg"] * producer["request-total"] == pytest.approx(producer["outgoing-byte-total"])
    for name in ("outgoing-byte-total", "incoming-byte-total", "request-total", "response-total"):
        assert producer[name] == sum(node[name] for node in nodes.values())
    assert producer["connection-creation-total"] == len(nodes) == producer["connection-count"]
    assert "node--1" in nodes
    asked = [node for node in nodes.values() if not isnan(node["request-latency-avg"])]
    assert [node["request-latency-max"] for node in asked] == [producer["request-latency-max"]]
    assert 0 <= producer["metadata-age"] < 60
    assert producer["select-total"] > 0
    assert 0 < producer["io-wait-ratio"] < 1


def test_waits_for_metadata_and_in_flushes_are_timed(kafka: Kafka, new_topic: NewTopic) -> None:
    producer_metrics = send(kafka, new_topic(1))[0]["producer-metrics"]
    assert producer_metrics["metadata-wait-time-ns-total"] > 0
    assert producer_metrics["flush-time-ns-total"] > 0


def test_the_figures_stay_after_the_close(kafka: Kafka, new_topic: NewTopic) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        with producer.scope() as scope:
            scope.append(new_topic(1), records(10))
        before = producer.metrics()
    after = producer.metrics()["producer-metrics"]
    assert after["record-send-total"] == before["producer-metrics"]["record-send-total"] == 10
    assert (after["connection-count"], after["requests-in-flight"]) == (0, 0)
    assert after["connection-close-total"] == after["connection-creation-total"]
    assert after["buffer-available-bytes"] == after["buffer-total-bytes"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("ask", [Producer.metrics, Producer.client_instance_id])
def test_a_forked_child_is_told_that_the_figures_are_its_parents(ask: Callable[[Producer], object]) -> None:
    context = multiprocessing.get_context("fork")
    with Producer({"bootstrap.servers": "127.0.0.1:1"}) as producer:
        result: SimpleQueue[str] = context.SimpleQueue()
        child = context.Process(target=_ask_in_child, args=(producer, ask, result))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert "a forked child must create its own producer" in result.get()


def _ask_in_child(producer: Producer, ask: Callable[[Producer], object], result: SimpleQueue[str]) -> None:
    try:
        ask(producer)
        result.put("no error")
    except UsageError as error:
        result.put(str(error))
