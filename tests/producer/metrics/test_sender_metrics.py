"""What the sender's thread tells of its work is what the figures say; no broker, no thread, a clock by hand."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import isnan

import pytest

from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError
from spark_kafka_sink.network.kafka_channel import NetworkCounts
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec
from tests.producer.parts import make_parts

NOW_MS = 1_000_000
CONFIG = producer_config({"bootstrap.servers": "a:1"})


@dataclass
class Clock:
    now_ms: int = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> SenderMetrics:
    return SenderMetrics(CONFIG, clock=clock)


def batches(topic: str, *values: list[bytes], codec: Codec = Codec.NONE) -> list[SealedBatch]:
    """A batch of each list, each of another partition."""
    parts = make_parts()
    rows = [(value, partition) for partition, own in enumerate(values) for value in own]
    parts.append(parts.tally(), [value for value, _ in rows], [partition for _, partition in rows], topic)
    return [SealedBatch(batch, codec, 1) for batch in parts.drain_all()]


def of_producer(metrics: SenderMetrics) -> dict[str, float]:
    return metrics.snapshot({})[0]


def of_topic(metrics: SenderMetrics, topic: str) -> dict[str, float]:
    return metrics.snapshot({})[1][topic]


def of_node(metrics: SenderMetrics, node: str) -> dict[str, float]:
    return metrics.snapshot({})[2][node]


def test_a_request_counts_its_batches_and_its_records(metrics: SenderMetrics, clock: Clock) -> None:
    small, large = batches("t", [b"1"], [b"2" * 50, b"3" * 200])
    for batch, waited_ms in ((small, 4), (large, 10)):
        batch.created_ms = clock.now_ms - waited_ms
    metrics.sending([small, large], clock.now_ms)
    clock.now_ms += 15_000
    producer, topic = of_producer(metrics), of_topic(metrics, "t")
    assert producer["record-send-total"] == topic["record-send-total"] == 3
    assert producer["record-send-rate"] == topic["record-send-rate"] == 3 / 45
    assert producer["records-per-request-avg"] == 3
    assert (producer["batch-size-avg"], producer["batch-size-max"]) == ((small.size + large.size) / 2, large.size)
    assert topic["byte-total"] == small.size + large.size
    assert producer["compression-rate-avg"] == topic["compression-rate"] == 1
    assert (producer["record-queue-time-avg"], producer["record-queue-time-max"]) == (7, 10)


def test_a_records_size_is_what_it_takes_as_a_batch_of_its_own(metrics: SenderMetrics) -> None:
    (alone,) = batches("t", [b"x" * 200])
    metrics.sending(batches("t", [b"1", b"x" * 200, b"22"], [b"333"]), NOW_MS)
    (other,) = batches("t", [b"333"])
    producer = of_producer(metrics)
    # Deltas of 0 and 1 take a byte both.
    assert producer["record-size-max"] == alone.size
    assert producer["record-size-avg"] == (alone.size + other.size) / 2
    assert alone.largest_record == alone.size - HEADER_SIZE


def test_a_batch_that_grew_knows_the_largest_record_of_all_its_appends() -> None:
    parts = make_parts()
    scope = parts.tally()
    for value in (b"1", b"2" * 100, b"3" * 10):
        parts.append(scope, [value], [0])
    (batch,) = parts.drain_all()
    assert batch.record_count == 3
    assert batch.largest_record > 100
    assert batch.largest_record < 120


def test_compression_is_a_ratio_of_the_records_alone(metrics: SenderMetrics) -> None:
    (batch,) = batches("t", [b"x" * 5000], codec=Codec.ZSTD)
    metrics.sending([batch], NOW_MS)
    assert of_producer(metrics)["compression-rate-avg"] == sum(map(len, batch.payload)) / batch.raw_size < 0.1


def test_what_is_old_leaves_averages_and_rates_and_stays_in_totals(metrics: SenderMetrics, clock: Clock) -> None:
    metrics.sending(batches("t", [b"1"]), clock.now_ms)
    clock.now_ms += 2 * CONFIG.metrics_sample_window_ms
    producer = of_producer(metrics)
    assert isnan(producer["batch-size-avg"])
    assert producer["record-send-rate"] == 0
    assert producer["record-send-total"] == 1


def test_topics_are_counted_apart(metrics: SenderMetrics) -> None:
    metrics.sending([*batches("t", [b"1"]), *batches("u", [b"2", b"3"])], NOW_MS)
    metrics.retried("u", 2)
    metrics.failed("t", 1)
    assert [of_topic(metrics, topic)["record-send-total"] for topic in "tu"] == [1, 2]
    assert [of_topic(metrics, topic)["record-retry-total"] for topic in "tu"] == [0, 2]
    assert [of_topic(metrics, topic)["record-error-total"] for topic in "tu"] == [1, 0]
    producer = of_producer(metrics)
    assert producer["records-per-request-avg"] == 3
    assert (producer["record-retry-total"], producer["record-error-total"]) == (2, 1)


def test_latencies_are_those_of_all_and_of_each_broker(metrics: SenderMetrics, clock: Clock) -> None:
    metrics.answered(1, 10, clock.now_ms)
    metrics.answered(2, 30, clock.now_ms)
    assert of_producer(metrics)["request-latency-avg"] == 20
    assert of_producer(metrics)["request-latency-max"] == 30
    assert of_node(metrics, "node-1")["request-latency-max"] == 10


def test_a_poll_counts_what_went_over_the_network(metrics: SenderMetrics, clock: Clock) -> None:
    counts = NetworkCounts(polls=1, waited_ns=3_000_000, busy_ns=1_000_000, created=2, closed=1)
    counts.wrote(1, 100, 0)
    counts.wrote(1, 50, 150)
    counts.wrote(-1, 20, 20)
    counts.read(1, 40, whole=True)
    counts.throttled(0)
    counts.throttled(80)
    metrics.polled(counts, clock.now_ms)
    producer = of_producer(metrics)
    assert (producer["outgoing-byte-total"], producer["incoming-byte-total"], producer["network-io-total"]) == (170, 40, 4)
    assert (producer["request-total"], producer["response-total"]) == (2, 1)
    assert (producer["request-size-avg"], producer["request-size-max"]) == (85, 150)
    assert (producer["connection-creation-total"], producer["connection-close-total"]) == (2, 1)
    assert (producer["produce-throttle-time-avg"], producer["produce-throttle-time-max"]) == (40, 80)
    assert (producer["select-total"], producer["io-wait-time-ns-avg"], producer["io-time-ns-total"]) == (1, 3_000_000, 1_000_000)
    assert producer["io-wait-ratio"] == pytest.approx(3 / 30_000)
    assert of_node(metrics, "node-1")["outgoing-byte-total"] == 150
    assert of_node(metrics, "node--1")["request-size-max"] == 20


def test_a_refused_append_counts_its_records_as_errors(metrics: SenderMetrics) -> None:
    metrics.sending(batches("t", [b"1"]), NOW_MS)
    metrics.append_refused("t", 3, RecordTooLargeError("too large"))
    metrics.append_refused("t", 4, BufferExhaustedError("no memory"))
    producer = of_producer(metrics)
    assert producer["record-error-total"] == of_topic(metrics, "t")["record-error-total"] == 7
    assert producer["buffer-exhausted-total"] == 4


def test_a_topics_name_that_was_mistaken_is_not_kept(metrics: SenderMetrics) -> None:
    metrics.append_refused("tt", 3, RecordTooLargeError("too large"))
    assert metrics.snapshot({})[1] == {}
    assert of_producer(metrics)["record-error-total"] == 3


def test_times_add_up(metrics: SenderMetrics, clock: Clock) -> None:
    for waited_ns in (1_000_000, 5_000_000):
        metrics.waited_for_memory(waited_ns)
        metrics.waited_for_metadata(2 * waited_ns)
        metrics.flushed(3 * waited_ns)
    metrics.batch_split()
    producer = of_producer(metrics)
    assert producer["bufferpool-wait-time-ns-total"] == 6_000_000
    assert producer["bufferpool-wait-ratio"] == pytest.approx(6 / 30_000)
    assert producer["metadata-wait-time-ns-total"] == 12_000_000
    assert producer["flush-time-ns-total"] == 18_000_000
    assert producer["batch-split-total"] == 1


def test_figures_may_be_asked_for_while_threads_record(metrics: SenderMetrics) -> None:
    sent = batches("t", [b"1", b"2"])
    rounds = 300

    def record(topic_number: int) -> None:
        for number in range(rounds):
            metrics.sending(sent, number)
            metrics.failed(f"topic {topic_number} {number}", 1)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    seen: list[float] = []
    while any(thread.is_alive() for thread in threads):
        seen.append(of_producer(metrics)["record-send-total"])
    assert seen == sorted(seen)
    producer, topics, _ = metrics.snapshot({})
    assert producer["record-send-total"] == topics["t"]["record-send-total"] == 4 * rounds * 2
    assert producer["record-error-total"] == 4 * rounds == len(topics) - 1
