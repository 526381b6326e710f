"""Many threads on one pool and one accumulator: an append's two lock scopes, who is served when, and whom close wakes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from spark_kafka_sink.errors import BufferExhaustedError, UsageError
from spark_kafka_sink.producer.accumulator import appender
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.records.pieces import encode_pieces
from tests.producer.accumulator.model_sender import read, unnumbered
from tests.producer.accumulator.test_buffer_pool import CHUNK, FOREVER, soon
from tests.producer.parts import Parts, make_parts
from tests.waiting import HOUR_MS, wait_until

THREADS = 8
TOLD = 60.0  # seconds within which threads meet or are woken, unless one waits for another's lock or its own deadline


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS + 1) as threads:
        yield threads


def results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(FOREVER) for future in futures]


def small_parts(chunks: int, **settings: object) -> Parts:
    return make_parts(chunk_size=256, buffer_memory=chunks * 256, batch_size=1000, max_block_ms=HOUR_MS, **settings)


def numbers(batch: OpenBatch) -> list[int]:
    return read(unnumbered(batch))


# The pool


def test_who_gives_up_among_many_who_wait_holds_nobody_up_and_loses_nothing(threads: ThreadPoolExecutor) -> None:
    pool = BufferPool(6 * CHUNK, CHUNK)
    held = pool.try_allocate(3) or []

    def work(number: int) -> int:
        given_up = 0
        for turn in range(200):
            wanted = 1 + (number + turn) % 4
            try:
                pool.deallocate(pool.allocate(wanted, 0.0 if wanted == 4 else soon()))
            except BufferExhaustedError:
                given_up += 1
        return given_up

    assert results([threads.submit(work, number) for number in range(THREADS)]) == [50] * THREADS
    pool.deallocate(held)
    assert (pool.free_chunks, pool.queued()) == (6, 0)


# The two lock scopes


def test_appends_encode_at_the_same_time(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the same partition: none holds the lock while it encodes."""
    parts = small_parts(400)
    meeting = threading.Barrier(THREADS, timeout=TOLD)

    def encode(*columns: Any) -> Any:
        meeting.wait()
        return encode_pieces(*columns)

    monkeypatch.setattr(appender, "encode_pieces", encode)
    results([threads.submit(parts.append, parts.tally(), [b"%d" % number], [0]) for number in range(THREADS)])
    assert sorted(number for batch in parts.drain_all() for number in numbers(batch)) == list(range(THREADS))


def test_while_an_append_waits_for_memory_others_append_and_the_sender_takes_what_is_there(threads: ThreadPoolExecutor) -> None:
    parts = small_parts(16)
    first, second = parts.tally(), parts.tally()
    parts.append(first, [b"%0900d" % 1], [0])
    parts.append(second, [b"2"], [1])
    held = parts.pool.try_allocate(parts.pool.free_chunks) or []
    waiting = threads.submit(parts.append, first, [b"%0900d" % 3], [0])
    wait_until(lambda: parts.pool.queued() == 1)
    parts.append(second, [b"5"], [1])  # there is room in its batch
    taken = parts.drain_all()
    assert [numbers(batch) for batch in taken] == [[1], [2, 5]]
    for batch in taken:
        batch.memory.give_back(parts.pool)
    waiting.result(FOREVER)
    assert [numbers(batch) for batch in parts.drain_all()] == [[3]]
    assert len(held) + parts.pool.free_chunks + parts.pool.chunks_for(900) == 16


def test_memory_that_was_waited_for_and_is_not_needed_goes_back(threads: ThreadPoolExecutor) -> None:
    """Memory is asked for by upper bounds of the records' sizes."""
    parts = small_parts(16)
    held = parts.pool.try_allocate(16) or []
    waiting = threads.submit(parts.append, parts.tally(), [b"x" * 245], [0])
    wait_until(lambda: parts.pool.queued() == 1)
    parts.pool.deallocate(held[:1])
    assert parts.pool.queued() == 1, "it asks for more than a chunk"
    parts.pool.deallocate(held[1:2])
    waiting.result(FOREVER)
    assert parts.pool.free_chunks == 1


# All of it at once


def test_each_threads_rows_keep_their_order_in_each_partition_and_all_memory_comes_back(threads: ThreadPoolExecutor) -> None:
    parts = small_parts(64, linger_ms=0)
    partitions, appends, rows = 5, 40, 30
    woken, done = threading.Event(), threading.Event()
    parts.wakeups.on_wakeup = woken.set
    log: dict[int, list[int]] = defaultdict(list)

    def send() -> None:
        while not done.is_set():
            woken.wait(FOREVER)
            woken.clear()
            take(parts, log)

    def task(thread: int, scope: Tally) -> None:
        for turn in range(appends):
            start = thread * 1_000_000 + turn * rows
            values: list[bytes | None] = [b"%0*d" % (10 + 17 * (n % 9), n) for n in range(start, start + rows)]
            parts.append(scope, values, [n % partitions for n in range(rows)])

    sender = threads.submit(send)
    try:
        results([threads.submit(task, thread, parts.tally()) for thread in range(THREADS)])
    finally:
        done.set()
        woken.set()
    sender.result(FOREVER)
    parts.accumulator.flush(None)
    take(parts, log)
    for partition in range(partitions):
        for thread in range(THREADS):
            own = [number for number in log[partition] if number // 1_000_000 == thread]
            assert own == [thread * 1_000_000 + n for n in range(appends * rows) if n % rows % partitions == partition]
    assert parts.pool.free_chunks == 64
    assert parts.accumulator.memory_waiters == 0


def take(parts: Parts, log: dict[int, list[int]]) -> None:
    """What the sender's thread does, and a broker that acks all of it at once."""
    while batches := parts.drain():
        for batch in batches:
            assert isinstance(batch, OpenBatch)
            log[batch.queue.partition] += numbers(batch)
            parts.accumulator.remove(batch)
            batch.memory.give_back(parts.pool)


def test_abort_in_the_middle_of_appends_leaves_nothing_in_the_accumulator(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = small_parts(400)
    encoding, aborted = threading.Barrier(THREADS + 1, timeout=TOLD), threading.Event()
    go_on: Callable[..., bool] = aborted.wait

    def encode(*columns: Any) -> Any:
        encoding.wait()
        assert go_on(FOREVER)
        return encode_pieces(*columns)

    monkeypatch.setattr(appender, "encode_pieces", encode)
    appends = [threads.submit(parts.append, parts.tally(), [b"%d" % n], [n % 2]) for n in range(THREADS)]
    encoding.wait()
    parts.accumulator.abort_all()
    aborted.set()
    for append in appends:
        with pytest.raises(UsageError, match="closed or failed during the append"):
            append.result(FOREVER)
    assert not parts.accumulator.has_incomplete()
    assert parts.drain_all() == []
