"""When buffered records go, what a flush does with them, and what happens where there is no memory or no metadata."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    MetadataTimeoutError,
    RecordError,
)
from spark_kafka_sink.producer.partitioners.interface import Partitions, Sizes
from spark_kafka_sink.producer.producer import CHUNK_SIZE, Producer
from spark_kafka_sink.producer.single_records.topic_buffer import MAX_ROWS, TopicBuffer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import failing_scope, numbers, producer_on
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.limits import calls_of
from tests.producer.inside import meet
from tests.producer.told import Told
from tests.tiers import whole_but
from tests.waiting import HOUR_MS, wait_until

pytestmark = pytest.mark.slow

ALL_MEMORY = CHUNK_SIZE - 200  # the value of a record that takes a buffer.memory of one chunk
LINGERING = {"linger_ms": HOUR_MS, "delivery_timeout_ms": 2 * HOUR_MS}


def of_producer(producer: Producer, metric: str) -> float:
    return producer.metrics()["producer-metrics"][metric]


# When they go


def test_records_linger_and_go_together(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with producer_on(kafka.bootstrap_servers, linger_ms=2000) as producer:  # long enough to send all of them
        producer.partitions_for(topic)
        begun = time.monotonic()
        futures = [producer.send(topic, b"%d" % n) for n in range(10)]
        assert [future.result(60).offset for future in futures] == list(range(10))
        assert time.monotonic() - begun > 2
        assert producer.metrics()["producer-metrics"]["records-per-request-avg"] == 10


def test_as_many_as_are_worth_an_append_wait_for_nothing(cluster: RecordingBroker) -> None:
    with producer_on(cluster.bootstrap_servers, batch_size=1000, **LINGERING) as producer:
        futures = [producer.send("t", b"%d" % n) for n in range(MAX_ROWS)]
        assert futures[0].result(60).offset == 0
        assert not futures[-1].done()  # its batch is not full
        producer.flush()
    assert cluster.values() == list(range(MAX_ROWS))


def test_many_topics_share_a_producer(cluster: RecordingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [cluster.topic(f"t-{n}") for n in range(200)]
    with producer_on(cluster.bootstrap_servers, linger_ms=20) as producer:
        with ThreadPoolExecutor(50) as threads:  # asked about one by one they would take 200 answers
            list(threads.map(producer.partitions_for, topics))
        futures = [producer.send(topic, b"%d" % n) for n in range(5) for topic in topics]
        producer.flush(60)
        assert [future.result().offset for future in futures] == [n for n in range(5) for _ in topics]
        looked_at: set[str] = set()
        is_idle = TopicBuffer.is_idle

        def watched(buffer: TopicBuffer) -> bool:
            looked_at.add(buffer.waiter.topic)
            return is_idle(buffer)

        monkeypatch.setattr(TopicBuffer, "is_idle", watched)

        def only_one_is_looked_at() -> bool:
            looked_at.clear()
            producer.send(topics[0], b"5").result(60)
            return looked_at == {topics[0]}

        wait_until(only_one_is_looked_at, "those that are empty are not looked at any more")
    assert all(cluster.values(topic)[:5] == list(range(5)) for topic in topics)


# Flush


def test_a_flush_waits_for_what_was_sent_before_it(kafka: Kafka, new_topic: NewTopic) -> None:
    topics = [new_topic(3) for _ in range(3)]
    with producer_on(kafka.bootstrap_servers, **LINGERING) as producer:
        futures = [producer.send(topics[n % 3], b"%d" % n) for n in range(7000)]
        producer.flush()
        assert all(future.done() for future in futures)
        later = producer.send(topics[0], b"7000")
        assert not later.done()
    assert later.done()
    read = [int(record.value or b"") for topic in topics for record in read_topic(kafka.bootstrap_servers, topic)]
    assert sorted(read) == list(range(7001))


def test_a_flush_ends_although_others_go_on_sending(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, stop = new_topic(1), threading.Event()
    with producer_on(kafka.bootstrap_servers, buffer_memory=64 * 1024, linger_ms=5) as producer:

        def send_on() -> None:
            while not stop.is_set():
                producer.send(topic, bytes(200))

        others = [threading.Thread(target=send_on) for _ in range(2)]
        for other in others:
            other.start()
        try:
            for _ in range(5):
                mine = producer.send(topic, b"mine")
                producer.flush(60)
                assert mine.done()
        finally:
            stop.set()
            for other in others:
                other.join(60)


def nobody_waits_for_memory(producer: Producer) -> bool:
    """For some time: an append asks for less memory when much is long in coming, and waits for that."""
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        if of_producer(producer, "waiting-threads"):
            return False
    return True


class ByValue:
    """Sends each record to the partition that its value names; `asked` has the values of each call."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        assert columns.value is not None
        values = columns.value.to_pylist()
        self.asked.append(values)
        return np.array([int(value) for value in values], np.int32)


def test_a_flush_does_not_wait_for_records_that_came_after_it(cluster: RecordingBroker) -> None:
    cluster.topic("u", [1, 1])
    held, again = (cluster.faults.hold(ApiKey.PRODUCE, topic=topic) for topic in ("t", "u"))
    by_value = ByValue()
    settings = {"buffer_memory": CHUNK_SIZE, "batch_size": CHUNK_SIZE, "partitioner_class": by_value, **LINGERING}
    # After max.block.ms the flush looks again.
    with producer_on(cluster.bootstrap_servers, max_block_ms=1000, **settings) as producer, failing_scope(producer) as scope:
        wait_until(lambda: knows(producer, "t") and knows(producer, "u"), "the topics are known")
        scope.append("t", numbers([0], partition=0, width=ALL_MEMORY))
        held.wait()  # what holds the memory
        mine = producer.send("u", b"0")
        flushing = threading.Thread(target=producer.flush, args=(30,))
        flushing.start()
        wait_until(lambda: [b"0"] in by_value.asked, "the flush has taken it")
        later = producer.send("u", b"1")
        wait_until(lambda: [b"1"] in by_value.asked, "the flush has taken both")
        held.remove()
        again.wait()  # the first of them
        wait_until(lambda: nobody_waits_for_memory(producer), "the flush lets the second be")
        again.remove()
        flushing.join(60)
        assert not flushing.is_alive()
        assert mine.result(0).offset == 0
        assert not later.done()


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_a_flush_that_takes_too_long_says_so_and_loses_nothing(cluster: RecordingBroker, timeout: float) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    with producer_on(cluster.bootstrap_servers, buffer_memory=CHUNK_SIZE, linger_ms=5) as producer:
        futures = [producer.send("t", b"%0*d" % (ALL_MEMORY, 0))]
        held.wait()  # what holds the memory
        futures += [producer.send("t", b"%d" % n) for n in range(1, 8)]
        with pytest.raises(
            FlushTimeoutError,
            match=r"flush: timed out after [\d.]+ s; (records are in no batch \(buffer\.memory: |\d batch(es are| is) not ack).*",
        ):
            producer.flush(timeout)
        held.remove()
        assert [future.result(60).offset for future in futures] == list(range(8))
    assert cluster.values() == list(range(8))


def test_a_flush_of_a_topic_that_is_gone_ends_at_the_delivery_timeout(cluster: RecordingBroker) -> None:
    # The end of the topic must be known before the record has lingered.
    timeouts = {"linger_ms": 4000, "delivery_timeout_ms": 5000, "request_timeout_ms": 500, "max_block_ms": 100}
    with producer_on(cluster.bootstrap_servers, metadata_max_age_ms=50, **timeouts) as producer:
        wait_until(lambda: knows(producer, "t"), "the topic is known")
        lost = producer.send("t", b"1")
        cluster.delete()
        wait_until(lambda: not knows(producer, "t"), "the topic's end is known")
        with pytest.raises(
            FlushTimeoutError,
            match=r"after 0\.1 s; records are in no batch \(topic t: .*(UNKNOWN_TOPIC|no response yet).*\); they may",
        ):
            producer.flush(0.1)
        producer.flush(60)
        with pytest.raises(DeliveryTimeoutError, match=r"not sent within delivery\.timeout\.ms .*UNKNOWN_TOPIC"):
            lost.result(0)


# Memory


def test_where_there_is_no_memory_those_that_are_enough_fail_at_max_block_ms(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    """The broker stands still: its proxy lets nothing through."""
    topic, told = new_topic(1, on=proxied_kafka.cluster), Told()
    settings = {"buffer_memory": 64 * 1024, "max_block_ms": 1000, "linger_ms": HOUR_MS, "delivery_timeout_ms": 2 * HOUR_MS}
    with producer_on(proxied_kafka.cluster.bootstrap_servers, **settings) as producer:
        meet(producer, topic)
        assert producer.send(topic, b"first", on_completion=told.of("first")) is not None
        producer.flush(60)
        proxied_kafka.proxy.pause()
        futures = [producer.send(topic, bytes(1000), on_completion=told.of(n)) for n in range(200)]
        late = [future for future in futures if future.done()]
        assert late
        for future in late:
            assert isinstance(future.exception(), BufferExhaustedError)
        assert "buffer.memory: " in str(late[0].exception())
        proxied_kafka.proxy.resume()
        producer.flush(30)
        assert all(future.done() for future in futures)
        stored = [future for future in futures if future.exception() is None]
        assert 0 < len(stored) == len(futures) - len(late)
        assert producer.send(topic, b"last").done() is False
    memory = of_producer(producer, "buffer-total-bytes")
    assert of_producer(producer, "buffer-available-bytes") == memory, "all memory is back"
    assert set(told.records) == {"first", *range(200)}
    assert len(told.records) == 201
    assert len(read_topic(proxied_kafka.cluster.direct_servers, topic)) == len(stored) + 2


def test_the_senders_thread_does_not_spin_where_there_is_no_memory(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    cluster.topic("u")
    with producer_on(cluster.bootstrap_servers, buffer_memory=CHUNK_SIZE, linger_ms=5) as producer:
        producer.partitions_for("u")
        futures = [producer.send("t", b"%0*d" % (ALL_MEMORY, 0))]
        held.wait()  # what holds the memory
        futures.append(producer.send("t", b"1"))
        wait_until(lambda: not futures[1].pending, "a little is borrowed")
        futures.append(producer.send("u", b"0"))
        polls = of_producer(producer, "select-total")
        begun = time.monotonic()
        while time.monotonic() - begun < 0.5:
            pass
        assert of_producer(producer, "select-total") < polls + 30
        assert futures[2].pending
        held.remove()
        assert [future.result(60).offset for future in futures] == [0, 1, 0]


class InTurn:
    """Every fourth to partition 0, the others to 1; when it is asked again, all to 0."""

    def __init__(self) -> None:
        self.asked = 0

    def partition(self, topic: str, columns: RecordColumns, sizes: Sizes, cluster: Cluster) -> Partitions:
        self.asked += 1
        rows = np.arange(columns.num_records)
        return np.minimum(rows % 4, 1 if self.asked == 1 else 0, dtype=np.int32, casting="unsafe")


def test_records_that_find_no_memory_keep_their_partition_and_with_it_their_order(cluster: RecordingBroker) -> None:
    topic = cluster.topic("two", [1, 1])
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    settings = {"buffer_memory": 4 * CHUNK_SIZE, "batch_size": CHUNK_SIZE, "partitioner_class": InTurn, **LINGERING}
    with producer_on(cluster.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        producer.partitions_for(topic)  # behind what is held nothing is answered
        scope.append("t", numbers([0, 1], partition=0, width=ALL_MEMORY))
        futures = [producer.send(topic, b"%01000d" % n) for n in range(40)]
        with pytest.raises(FlushTimeoutError):
            producer.flush(0.2)
        wait_until(lambda: not any(future.pending for future in futures[::4]), "partition 0, which comes first")
        assert futures[-1].pending
        held.remove()
        producer.flush(60)
    assert cluster.values(topic, 0) == list(range(0, 40, 4))
    assert cluster.values(topic, 1) == [n for n in range(40) if n % 4]


def knows(producer: Producer, topic: str) -> bool:
    try:
        return bool(producer.partitions_for(topic))
    except MetadataTimeoutError:
        return False


def test_one_record_gets_through_where_others_always_wait_for_memory(cluster: RecordingBroker) -> None:
    cluster.topic("busy")
    stop = threading.Event()
    settings = {"buffer_memory": 4 * CHUNK_SIZE, "batch_size": CHUNK_SIZE, "linger_ms": 5}
    with producer_on(cluster.bootstrap_servers, **settings) as producer:

        def append() -> None:
            with producer.scope() as scope:
                while not stop.is_set():
                    scope.append("busy", numbers(range(8), width=CHUNK_SIZE // 2))

        busy = [threading.Thread(target=append) for _ in range(3)]
        for thread in busy:
            thread.start()
        try:
            for n in range(20):
                assert producer.send("t", b"%d" % n).result(60).offset == n
        finally:
            stop.set()
            for thread in busy:
                thread.join(60)


def test_records_that_are_never_taken_expire_in_batches_and_before(cluster: RecordingBroker) -> None:
    told = Told()
    timeouts = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1900, "linger_ms": 0, "max_block_ms": HOUR_MS}
    producer = producer_on(cluster.bootstrap_servers, buffer_memory=CHUNK_SIZE, **timeouts)
    # With a connection and a producer id the next is sent long before it expires.
    wait_until(lambda: producer.send("t", b"-1").exception(60) is None, "a first record")
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    futures = [producer.send("t", b"%0*d" % (ALL_MEMORY, 0), on_completion=told.of(0))]
    held.wait()  # what holds the memory
    futures += [producer.send("t", b"%d" % n, on_completion=told.of(n)) for n in range(1, 6)]
    told.wait_for(6)
    assert {type(future.exception(60)) for future in futures} == {DeliveryTimeoutError}
    assert sorted(told.records) == list(range(6))
    producer.close(60)


def test_a_flush_does_not_spin_where_no_append_may_wait_for_memory(cluster: RecordingBroker) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    with producer_on(cluster.bootstrap_servers, buffer_memory=CHUNK_SIZE, max_block_ms=0, **LINGERING) as producer:
        wait_until(lambda: knows(producer, "t"), "the topic is known")
        scope = producer.scope()
        scope.append("t", numbers([0], width=ALL_MEMORY))
        future = producer.send("t", b"1")

        def flush() -> None:
            with pytest.raises(FlushTimeoutError):
                producer.flush(0.5)

        assert calls_of(flush) < 5_000  # 600; going round and round for the half second makes 100,000
        held.remove()
        producer.flush(60)
        assert future.result(0).offset == 1
        scope.close()


# Rows that are refused


class Odd:
    """Sends even numbers to partition 0, and refuses odd ones."""

    def partition_record(self, topic: str, key: bytes | None, value: bytes | None, cluster: Cluster) -> int:
        if int(value or b"") % 2:
            raise ValueError(f"{value!r} is odd")
        return 0


@pytest.mark.parametrize(
    "wrong",
    whole_but(
        [[3], [0], [999], [1, 2, 3], [5, 500, 998], list(range(0, 1000, 7))],
        [[5, 500, 998], list(range(0, 1000, 7))],
        "one row and many are in make test",
    ),
)
def test_a_row_that_the_partitioner_refuses_fails_alone_and_the_others_go_on_in_order(
    kafka: Kafka, new_topic: NewTopic, wrong: list[int]
) -> None:
    topic, told = new_topic(1), Told()
    with producer_on(kafka.bootstrap_servers, partitioner_class=Odd, **LINGERING) as producer:
        futures = [
            producer.send(topic, b"%d" % (2 * n + (n in wrong)), headers=[("n", b"%d" % n)], on_completion=told.of(n))
            for n in range(1000)
        ]
        producer.flush()
        assert [n for n, future in enumerate(futures) if isinstance(future.exception(), RecordError)] == wrong
        assert "is odd" in str(futures[wrong[0]].exception())
    right = [n for n in range(1000) if n not in wrong]
    assert [int(record.value or b"") // 2 for record in read_topic(kafka.bootstrap_servers, topic)] == right
    assert [futures[n].result().offset for n in right] == list(range(len(right)))
    assert sorted(told.records) == list(range(1000))
