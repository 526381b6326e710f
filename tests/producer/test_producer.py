"""The whole producer against real Kafka, judged by a consumer that is not ours."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import KafkaSinkError, MetadataTimeoutError, RecordError, UsageError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from spark_kafka_sink.records.pieces import encode_pieces
from tests.faults.producing import producer_at
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.tiers import whole_but
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def numbered(count: int, start: int = 0) -> RecordColumns:
    return RecordColumns(count, value=pa.array([b"%d" % n for n in range(start, start + count)]))


def send(producer: Producer, topic: str, columns: RecordColumns) -> None:
    with producer.scope() as scope:
        scope.append(topic, columns)
        scope.flush()


@pytest.fixture
def many_partitions() -> Iterator[str]:
    """The address of a broker in this process that has a topic `t` of 300 partitions."""
    with RecordingBroker() as cluster:
        cluster.topic("t", [1] * 300)
        yield cluster.bootstrap_servers


@pytest.mark.fault("record", "null key, value and header value; empty ones")
@pytest.mark.parametrize("codec", whole_but(CODECS, ["none", "zstd"], "the next test has every codec"))
def test_every_part_of_a_record_arrives_as_it_was_given(kafka: Kafka, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(3, config={"retention.ms": "-1"})  # the broker may look for old records at any moment
    keys: list[bytes | None] = [b"a", None, b"", b"b" * 300]
    values: list[bytes | None] = [b"1", b"", None, b"x" * 5000]
    timestamps = [1_700_000_000_000, 0, 1_600_000_000_000, 1_700_000_000_001]
    headers = [[("h", b"1"), ("h", None)], None, [], [("ü", b"")]]
    struct = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = RecordColumns(
        4,
        key=pa.array(keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.array([None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers], struct),
        timestamp=np.array(timestamps, dtype=np.int64),
        partition=np.array([0, 1, 2, 0], dtype=np.int32),
    )
    with producer_at(kafka, compression_type=codec) as producer:
        send(producer, topic, columns)
    read = {
        (r.partition, r.offset): (r.key, r.value, list(r.headers), r.timestamp)
        for r in read_topic(kafka.bootstrap_servers, topic)
    }
    expected = [(k, v, h or [], t) for k, v, h, t in zip(keys, values, headers, timestamps, strict=True)]
    assert read == {(0, 0): expected[0], (1, 0): expected[1], (2, 0): expected[2], (0, 1): expected[3]}


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_fill_several_blocks_of_a_codec_arrive_whole(kafka: Kafka, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(1)
    values = [b'{"id":%09d,"user":"u%05d"}' % (n * 7919 % 10**9, n * 104_729 % 10**5) * 30 for n in range(2_000)]  # 2 MB
    with producer_at(kafka, compression_type=codec, batch_size=1_000_000) as producer, producer.scope() as scope:
        scope.append(topic, RecordColumns(len(values), value=pa.array(values, pa.binary())))
        scope.flush()
        assert scope.report().batches <= 3
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic)] == values


def test_acks_0_sends_without_answers(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with producer_at(kafka, acks="0") as producer, producer.scope() as scope:
        scope.append(topic, numbered(500))
        scope.flush()
        report = scope.report()
    assert report.records == 500
    assert report.partitions[topic, 0].last_offset == -1
    wait_until(lambda: len(read_topic(kafka.bootstrap_servers, topic)) == 500, "the records")


def test_closing_sends_what_lingers(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    producer = producer_at(kafka, linger_ms=60_000)
    scope = producer.scope()
    scope.append(topic, numbered(10))
    producer.close(timeout=30)
    assert len(read_topic(kafka.bootstrap_servers, topic)) == 10
    with pytest.raises(UsageError, match="closed"):
        scope.append(topic, numbered(1))


def test_tasks_that_share_a_producer_count_only_their_own_records(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    counts = [1000, 2000, 3000]
    with producer_at(kafka) as producer:
        reports = {}

        def task(count: int) -> None:
            with producer.scope() as scope:
                for start in range(0, count, 100):
                    scope.append(topic, numbered(100, start))
                scope.flush()
                reports[count] = scope.report().records

        threads = [threading.Thread(target=task, args=(count,)) for count in counts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert reports == {count: count for count in counts}
    assert len(read_topic(kafka.bootstrap_servers, topic)) == sum(counts)


def test_a_little_memory_is_enough_for_any_amount(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(8)
    with producer_at(kafka, buffer_memory=256 * 1024) as producer, producer.scope() as scope:
        for start in range(0, 30_000, 10_000):
            columns = RecordColumns(10_000, value=pa.array([b"%0100d" % n for n in range(start, start + 10_000)]))
            scope.append(topic, columns)
        scope.flush()
        assert scope.report().records == 30_000
    read = sorted(int(record.value or b"") for record in read_topic(kafka.bootstrap_servers, topic))
    assert read == list(range(30_000))


def test_a_scope_asks_for_rows_by_the_partitions_of_a_known_topic(many_partitions: str) -> None:
    with Producer({"bootstrap.servers": many_partitions}) as producer, producer.scope() as scope:
        assert scope.rows_per_append("t") == 0
        assert len(producer.partitions_for("t")) == 300
        assert scope.rows_per_append("t") == 40 * 300


def test_as_many_rows_as_a_scope_asks_for_are_encoded_at_once(many_partitions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Mock(wraps=encode_pieces)
    monkeypatch.setattr("spark_kafka_sink.producer.accumulator.appender.encode_pieces", rounds)
    rows = 40 * 300
    partitions = np.arange(rows, dtype=np.int32) % 300
    with Producer({"bootstrap.servers": many_partitions}) as producer, producer.scope() as scope:
        scope.append("t", RecordColumns(rows, value=numbered(rows).value, partition=partitions))
        scope.flush()
        assert scope.report().records == rows
    assert rounds.call_count == 1


@pytest.mark.fault("metadata", "unknown topic ends at max.block.ms and names what was tried")
def test_an_unknown_topic_ends_at_max_block_ms_with_what_was_asked(kafka: Kafka) -> None:
    with producer_at(kafka, max_block_ms=500) as producer, producer.scope() as scope:

        def names_the_answer() -> bool:
            with pytest.raises(MetadataTimeoutError, match="topic nowhere: ") as raised:
                scope.append("nowhere", numbered(1))
            return "UNKNOWN_TOPIC_OR_PARTITION" in str(raised.value)

        wait_until(names_the_answer, "an answer of a broker, which the first connection may make late")


@pytest.mark.fault("record", "partition negative or out of range")
def test_a_partition_out_of_range_names_the_row(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    columns = RecordColumns(3, value=pa.array([b"x"] * 3), partition=np.array([0, NO_PARTITION, 2], dtype=np.int32))
    wanted = pytest.raises(RecordError, match=r"row 2 of 3: column partition is 2")
    with producer_at(kafka) as producer, producer.scope() as scope, wanted:
        scope.append(topic, columns)


def test_no_broker_to_be_reached_ends_at_max_block_ms_with_the_address() -> None:
    options = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 300}
    with Producer(options) as producer, producer.scope() as scope, pytest.raises(MetadataTimeoutError, match=r"127\.0\.0\.1:1"):
        scope.append("t", numbered(1))


def test_a_close_that_cannot_wait_fails_what_is_left() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 60_000})
    failed: list[BaseException] = []

    def append() -> None:
        try:
            with producer.scope() as scope:
                scope.append("t", numbered(1))
        except KafkaSinkError as error:
            failed.append(error)

    waiting = threading.Thread(target=append)
    waiting.start()
    producer.close(timeout=5)
    waiting.join(60)
    assert isinstance(failed[0], UsageError)


def test_an_idle_producer_closes_itself(kafka: Kafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers}, idle_close_ms=50)
    wait_until(lambda: producer.closed, "the end of the producer")
    with pytest.raises(UsageError):
        producer.scope()


def test_an_idle_producer_stays_while_a_scope_is_open(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    producer = producer_at(kafka)
    with producer.scope() as scope:
        producer.close_when_idle()  # with no time to be idle; as an option it might close before the scope is open
        for _ in range(20):
            scope.append(topic, numbered(1))
            scope.flush()
            assert not producer.closed
    assert not producer.failed
    producer.close(60)


def test_a_close_beside_a_flush_lets_it_end_well(kafka: Kafka, new_topic: NewTopic) -> None:
    producer = producer_at(kafka, linger_ms=60_000)
    scope = producer.scope()
    scope.append(new_topic(1), numbered(10))
    closing = threading.Thread(target=producer.close, args=(30,))
    closing.start()
    scope.flush(30)
    closing.join(30)
    assert scope.report().records == 10


def _leave_in_child(scope: SendScope) -> None:
    scope.discard()
    scope.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_leaves_a_scope_without_waiting_for_the_parents_locks(kafka: Kafka) -> None:
    with producer_at(kafka) as producer, producer.scope() as scope:
        with scope.tally.appending:
            child = multiprocessing.get_context("fork").Process(target=_leave_in_child, args=(scope,))
            child.start()
            child.join(60)
        assert child.exitcode == 0
