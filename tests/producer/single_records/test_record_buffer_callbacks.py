"""What the callback of a buffered record may do: send and close, but not wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_kafka_sink.errors import KafkaSinkError, MetadataTimeoutError, UsageError
from spark_kafka_sink.producer.base.producer_record import OnCompletion, RecordMetadata
from spark_kafka_sink.producer.producer import CHUNK_SIZE, Producer
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.producer.single_records.topic_buffer import MAX_ROWS
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import figure, producer_on
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.producer.inside import meet
from tests.producer.single_records.test_record_buffer import ALL_MEMORY, LINGERING
from tests.producer.told import Told
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def in_callback(what: Callable[[], object], outcome: list[object]) -> OnCompletion:
    """Keeps what the call returned or raised."""

    def callback(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        try:
            outcome.append(what())
        except KafkaSinkError as raised:
            outcome.append(raised)

    return callback


def test_a_callback_may_send(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, other, told = new_topic(1), new_topic(1), Told()
    with producer_on(kafka.bootstrap_servers, linger_ms=0) as producer:
        answers: list[RecordFuture] = []

        def answer(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
            answers.append(producer.send(other, b"%d" % metadata.offset, on_completion=told.of(metadata.offset)))

        for n in range(100):
            producer.send(topic, b"%d" % n, on_completion=answer)  # of another topic, which is not known yet
        told.wait_for(100)
        assert [future.result(0).offset for future in answers] == list(range(100))
    assert [record.value for record in read_topic(kafka.bootstrap_servers, other)] == [b"%d" % n for n in range(100)]


def test_a_callback_may_send_more_than_is_buffered_at_once(cluster: RecordingBroker) -> None:
    many, told = 3 * MAX_ROWS, Told()
    with producer_on(cluster.bootstrap_servers, buffer_memory=2 * CHUNK_SIZE, batch_size=2000, **LINGERING) as producer:

        def send_many(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
            for n in range(many):
                producer.send("t", b"%d" % n, on_completion=told.of(n))

        producer.send("t", b"0", on_completion=send_many)
        producer.flush()
        wait_until(lambda: len(told.ends) >= many - MAX_ROWS, "full batches go although the rest lingers")
        producer.flush()
        assert told.records == list(range(many))
    assert cluster.values() == [0, *range(many)]


WAITS: list[Callable[[Producer, RecordFuture], object]] = [
    lambda producer, waiting: producer.flush(),
    lambda producer, waiting: producer.flush(1),
    lambda producer, waiting: waiting.result(),
    lambda producer, waiting: waiting.exception(5),
]


@pytest.mark.parametrize("wait", WAITS)
def test_a_callback_that_would_wait_for_ever_is_told_so(
    kafka: Kafka, new_topic: NewTopic, wait: Callable[[Producer, RecordFuture], object]
) -> None:
    topic, outcome = new_topic(2), list[object]()
    with producer_on(kafka.bootstrap_servers, **LINGERING) as producer:
        producer.send(topic, b"0", partition=0).done()
        producer.flush()
        waiting: list[RecordFuture] = []
        first = producer.send(topic, b"1", partition=0, on_completion=in_callback(lambda: wait(producer, waiting[0]), outcome))
        waiting.append(producer.send(topic, b"2", partition=1))
        assert not first.done()
        producer.flush()
        (error,) = outcome
        assert isinstance(error, UsageError)
        assert "must not wait" in str(error)
        producer.flush()
        assert waiting[0].result().offset == 0


def test_a_callback_in_the_thread_that_sends_waits_for_no_lock_of_that_thread(cluster: RecordingBroker) -> None:
    """Those for whom there was no memory fail in the thread that found none, while it is about to go on with the others."""
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    outcome: list[object] = []
    waited: list[float] = []
    with producer_on(cluster.bootstrap_servers, buffer_memory=CHUNK_SIZE, max_block_ms=1000, **LINGERING) as producer:
        meet(producer, "t")
        futures: list[RecordFuture] = [producer.send("t", bytes(ALL_MEMORY))]

        def send_too_many() -> object:
            before = figure(producer, "bufferpool-wait-time-ns-total")
            futures.extend(producer.send("t", bytes(100)) for _ in range(200))
            waited.append(figure(producer, "bufferpool-wait-time-ns-total") - before)
            return futures[-1]

        calls = [send_too_many, futures[0].result, producer.flush, lambda: producer.partitions_for("nowhere")]
        for n in range(300):
            futures.append(producer.send("t", bytes(100), on_completion=in_callback(calls[min(n % 60, 3)], outcome)))
        assert len(outcome) > 100, "some have failed for want of memory"
        assert {type(each) for each in outcome} == {RecordFuture, UsageError, MetadataTimeoutError}
        assert set(waited) == {0}
        held.remove()
    assert all(future.done() for future in futures)


def test_a_callback_may_begin_to_close(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, outcome = new_topic(1), list[object]()
    producer = producer_on(kafka.bootstrap_servers, **LINGERING)
    futures = [producer.send(topic, b"0", on_completion=in_callback(producer.close, outcome))]
    producer.flush(60)
    wait_until(lambda: producer.closed, "the producer is closed")
    with pytest.raises(UsageError, match="closed"):
        producer.send(topic, b"1")
    producer.close(60)
    assert outcome == [None]
    assert [future.result(0).offset for future in futures] == [0]
