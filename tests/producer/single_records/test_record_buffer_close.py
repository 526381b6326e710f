"""What becomes of buffered records when their producer is closed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.errors import FlushTimeoutError, UsageError
from spark_kafka_sink.producer.producer import CHUNK_SIZE
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.producer.single_records.topic_buffer import MAX_ROWS
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import producer_on
from tests.faults.recording_broker import RecordingBroker
from tests.producer.single_records.test_record_buffer import ALL_MEMORY, LINGERING
from tests.producer.told import Told
from tests.tiers import whole_but
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


class Slow:
    """Chooses partition 0, once it may."""

    begun, may = threading.Event(), threading.Event()

    def partition_record(self, *_: object) -> int:
        self.begun.set()
        assert self.may.wait(60)
        return 0


def test_close_waits_for_what_another_thread_is_just_appending(cluster: RecordingBroker) -> None:
    slow = Slow()
    producer = producer_on(cluster.bootstrap_servers, partitioner_class=slow, **LINGERING)
    first = producer.send("t", b"0")
    others: list[RecordFuture] = []
    sending = threading.Thread(target=lambda: others.extend(producer.send("t", b"1") for _ in range(MAX_ROWS - 1)))
    sending.start()
    assert slow.begun.wait(60)
    closing = threading.Thread(target=producer.close)
    closing.start()
    wait_until(lambda: producer.closed, "it begins to close")
    closing.join(0.2)
    slow.may.set()
    closing.join(60)
    sending.join(60)
    assert [future.exception(0) for future in (first, *others)] == [None] * MAX_ROWS


@pytest.mark.parametrize("memory", [CHUNK_SIZE, 32 << 20])
@pytest.mark.parametrize("timeout", [0, 0.3])
def test_a_close_that_cannot_wait_fails_every_record_once(cluster: RecordingBroker, timeout: float, memory: int) -> None:
    held = cluster.faults.hold(ApiKey.PRODUCE, times=None)
    told = Told()
    producer = producer_on(cluster.bootstrap_servers, buffer_memory=memory, linger_ms=5)
    futures = [producer.send("t", b"%0*d" % (ALL_MEMORY, 0), on_completion=told.of(0))]
    held.wait()  # what holds the memory
    futures += [producer.send("t", b"%d" % n, on_completion=told.of(n)) for n in range(1, 20)]
    with pytest.raises(
        FlushTimeoutError, match=r"close: (1 record was|\d+ records were) not acknowledged within 0.* s and failed"
    ):
        producer.close(timeout)
    assert {type(future.exception(0)) for future in futures} == {UsageError}
    assert sorted(told.records) == list(range(20))
    assert told.records == list(range(20)), "in order"
    producer.close()
    assert len(told.ends) == 20


def test_an_error_in_a_producers_with_fails_every_record(cluster: RecordingBroker) -> None:
    told, futures = Told(), list[RecordFuture]()
    with pytest.raises(ZeroDivisionError), producer_on(cluster.bootstrap_servers, **LINGERING) as producer:
        futures += [producer.send("t", b"%d" % n, on_completion=told.of(n)) for n in range(5)]
        raise ZeroDivisionError
    assert {type(future.exception(0)) for future in futures} == {UsageError}
    assert told.records == list(range(5))


@pytest.mark.parametrize("run", whole_but(range(5), [0, 3], "two seconds each; another run closes at another time"))
def test_a_close_beside_threads_that_send_loses_nothing_of_what_they_were_told_is_sent(
    cluster: RecordingBroker, run: int
) -> None:
    producer = producer_on(cluster.bootstrap_servers, buffer_memory=8 * CHUNK_SIZE, linger_ms=1)
    begun = threading.Barrier(5)

    def send(thread: int) -> list[RecordFuture]:
        sent = list[RecordFuture]()
        begun.wait(60)
        try:
            while True:
                sent.append(producer.send("t", b"%d" % (thread * 10_000_000 + len(sent))))
        except UsageError:
            return sent

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(send, thread) for thread in range(4)]
        begun.wait(60)
        time.sleep(0.05 * run)
        producer.close(60)
        sent = [thread.result(60) for thread in threads]
    stored = cluster.values()
    assert len(stored) == len(set(stored))
    for thread, futures in enumerate(sent):
        # All that is told to be acked is stored, in order; only a send that had not returned at the close may have failed.
        ends = [future.exception(0) for future in futures]
        assert all(end is None for end in ends[:-1]) or {type(end) for end in ends if end} == {UsageError}
        acked = [thread * 10_000_000 + n for n, end in enumerate(ends) if end is None]
        assert [value for value in stored if value // 10_000_000 == thread] == acked
