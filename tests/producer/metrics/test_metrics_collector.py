"""What is pushed of a producer's metrics: Java's names, sums and gauges, prefixes, differences, and the limit of the broker."""

from __future__ import annotations

import uuid
from math import isnan
from typing import Any

from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.metrics.metric_table import CONSTANT_METRICS, GAUGES, NODE, OWN
from spark_kafka_sink.producer.metrics.metrics_collector import MetricsCollector
from spark_kafka_sink.producer.metrics.sender_metrics import ProducerMetrics, SenderMetrics
from spark_kafka_sink.producer.metrics.telemetry_state import Subscription
from spark_kafka_sink.records.compression import Codec, decompress
from tests.producer.metrics.otlp_witness import Pushed, read

BEGUN_NS, SECOND_NS = 1_000, 1_000_000_000
LIMIT = 1 << 20


def wanting(*prefixes: str, delta: bool = False, max_bytes: int = LIMIT) -> Subscription:
    return Subscription(uuid.UUID(int=1), 1, 1_000, prefixes or ("",), Codec.NONE, delta, max_bytes)


def metrics_of(topics: int = 1, nodes: int = 1, **values: float) -> ProducerMetrics:
    """Metrics of a producer in which everything is 0, NaN or in `values`, with underscores for hyphens."""
    sender = SenderMetrics(producer_config({"bootstrap.servers": "a:1"}), clock=lambda: 0)
    producer, _, _ = sender.snapshot({metric.name: 0.0 for metric in GAUGES})
    for topic in range(topics):
        sender.retried(f"topic-{topic}", 3 + topic)
    _, by_topic, _ = sender.snapshot({})
    of_node = {metric.name: 5.0 for metric in NODE}
    producer |= {name.replace("_", "-"): value for name, value in values.items()}
    return {
        "producer-metrics": producer,
        "producer-topic-metrics": by_topic,
        "producer-node-metrics": {f"node-{node}": of_node for node in range(nodes)},
    }


def pushed(collector: MetricsCollector, metrics: ProducerMetrics, wanted: Subscription, time_ns: int = SECOND_NS) -> Pushed:
    return read(decompress(wanted.codec, collector.payload(metrics, wanted, time_ns).data, 1 << 24))


def collector(**resource: str) -> MetricsCollector:
    return MetricsCollector(resource, BEGUN_NS)


def test_all_metrics_that_are_measured_have_javas_names() -> None:
    metrics = metrics_of()
    found = pushed(collector(), metrics, wanting())
    left_out = {metric.name for metric in OWN} | set(CONSTANT_METRICS)
    names = {
        f"org.apache.kafka.{group}.{name.replace('-', '.')}"
        for group, values in (
            ("producer", metrics["producer-metrics"]),
            ("producer.topic", metrics["producer-topic-metrics"]["topic-0"]),
            ("producer.node", metrics["producer-node-metrics"]["node-0"]),
        )
        for name in values
        if group != "producer" or name not in left_out
    }
    assert found.names() == names
    assert "org.apache.kafka.producer.connection.creation.total" in names
    assert "org.apache.kafka.producer.node.request.latency.avg" in names


def test_each_topic_and_broker_has_a_point_with_its_name() -> None:
    found = pushed(collector(), metrics_of(topics=2, nodes=2), wanting())
    assert [found.value("topic.record.retry.total", topic=f"topic-{number}") for number in range(2)] == [3, 4]
    assert [found.value("node.request.total", node_id=f"node-{number}") for number in range(2)] == [5, 5]


def test_totals_are_cumulative_sums_since_the_start_and_all_else_gauges() -> None:
    found = pushed(collector(), metrics_of(record_send_total=9.0, record_send_rate=0.5), wanting())
    total, rate = found.point("record.send.total"), found.point("record.send.rate")
    assert (total.value, total.temporality, total.start_ns, total.time_ns) == (9, "cumulative", BEGUN_NS, SECOND_NS)
    assert (rate.value, rate.temporality, rate.start_ns, rate.time_ns) == (0.5, "", 0, SECOND_NS)
    assert {point.temporality for point in found.points if point.name.endswith(".total")} == {"cumulative"}
    assert isnan(found.value("batch.size.avg"))  # an average of nothing, as in Java


def test_only_wanted_prefixes_are_pushed() -> None:
    found = pushed(collector(), metrics_of(), wanting("org.apache.kafka.producer.topic.", "org.apache.kafka.producer.txn"))
    assert {name.split(".")[4] for name in found.names()} == {"topic", "txn"}
    assert pushed(collector(), metrics_of(), wanting("org.apache.kafka.consumer.")).points == []


# Differences


def test_a_difference_counts_from_the_last_accepted_push() -> None:
    made, wanted = collector(), wanting("org.apache.kafka.producer.record.send.total", delta=True)
    first = made.payload(metrics_of(record_send_total=9.0), wanted, SECOND_NS)
    made.delivered(first)
    found = pushed(made, metrics_of(record_send_total=11.0), wanted, 2 * SECOND_NS)
    (before,) = read(first.data).points
    (point,) = found.points
    assert (before.value, before.temporality, before.start_ns, before.time_ns) == (9, "delta", BEGUN_NS, SECOND_NS)
    assert (point.value, point.temporality, point.start_ns, point.time_ns) == (2, "delta", SECOND_NS, 2 * SECOND_NS)


def test_a_rejected_difference_is_in_the_next_push() -> None:
    made, wanted = collector(), wanting("org.apache.kafka.producer.record.send.total", delta=True)
    made.payload(metrics_of(record_send_total=9.0), wanted, SECOND_NS)
    (point,) = pushed(made, metrics_of(record_send_total=11.0), wanted, 2 * SECOND_NS).points
    assert (point.value, point.start_ns) == (11, BEGUN_NS)


def test_a_new_topic_counts_from_the_start() -> None:
    made, wanted = collector(), wanting("org.apache.kafka.producer.topic.record.retry.total", delta=True)
    made.delivered(made.payload(metrics_of(topics=1), wanted, SECOND_NS))
    found = pushed(made, metrics_of(topics=2), wanted, 2 * SECOND_NS)
    assert [(point.attributes["topic"], point.value, point.start_ns) for point in found.points] == [
        ("topic-0", 0, SECOND_NS),
        ("topic-1", 4, BEGUN_NS),
    ]


def test_after_a_change_of_temporality_differences_begin_at_the_start() -> None:
    made, wanted = collector(), wanting("org.apache.kafka.producer.record.send.total", delta=True)
    made.delivered(made.payload(metrics_of(record_send_total=9.0), wanted, SECOND_NS))
    made.reset()
    (point,) = pushed(made, metrics_of(record_send_total=11.0), wanted).points
    assert (point.value, point.start_ns) == (11, BEGUN_NS)


# The broker's limit


def test_too_many_topics_are_left_out_and_then_brokers() -> None:
    metrics: Any = metrics_of(topics=50, nodes=50)
    sizes = {}
    for left_out in ((), ("topic",), ("topic", "node_id")):
        part = dict(metrics)
        part |= {"producer-topic-metrics": {}} if "topic" in left_out else {}
        part |= {"producer-node-metrics": {}} if "node_id" in left_out else {}
        sizes[left_out] = len(collector().payload(part, wanting(), SECOND_NS).data)  # type: ignore[arg-type]
    for left_out, size in sizes.items():
        fitting = collector().payload(metrics, wanting(max_bytes=size), SECOND_NS)
        assert (fitting.left_out, len(fitting.data)) == (left_out, size)
    least = collector().payload(metrics, wanting(max_bytes=10), SECOND_NS)
    assert least.left_out == ("topic", "node_id")


def test_what_was_left_out_is_not_counted_as_pushed() -> None:
    made = collector()
    small = made.payload(metrics_of(topics=50), wanting(delta=True, max_bytes=10), SECOND_NS)
    made.delivered(small)
    found = pushed(made, metrics_of(), wanting(delta=True), 2 * SECOND_NS)
    assert found.point("topic.record.retry.total", topic="topic-0").start_ns == BEGUN_NS
    assert found.point("record.send.total").start_ns == SECOND_NS
