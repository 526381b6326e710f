"""BufferPool: bounded, first come first served, every wait ends. Any history of it: test_buffer_pool_model.py."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError, UsageError
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool, Chunk
from tests.waiting import wait_until

CHUNK = 64
FOREVER = 60.0


def soon() -> float:
    return time.monotonic() + FOREVER


class Appenders:
    """Threads that allocate; each is in the pool's queue when `start` returns, so their order is known."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self.threads = ThreadPoolExecutor(8)

    def start(self, n_chunks: int) -> Future[list[Chunk]]:
        queued = self.pool.queued()
        future = self.threads.submit(self.pool.allocate, n_chunks, soon())
        wait_until(lambda: self.pool.queued() == queued + 1)
        return future


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool(4 * CHUNK, CHUNK)


@pytest.fixture
def appenders(pool: BufferPool) -> Any:
    appenders = Appenders(pool)
    yield appenders
    pool.close()
    appenders.threads.shutdown()


def take(pool: BufferPool, n_chunks: int) -> list[Chunk]:
    chunks = pool.try_allocate(n_chunks)
    assert chunks is not None
    return chunks


def test_all_of_a_pool_that_is_no_multiple_of_a_chunk_is_free_at_first_and_at_last() -> None:
    pool = BufferPool(4 * CHUNK + 5, CHUNK)
    assert pool.available == 4 * CHUNK + 5
    chunks = pool.try_allocate(4)
    assert chunks is not None
    assert (pool.available, pool.try_allocate(1)) == (5, None)
    pool.deallocate(chunks)
    assert pool.available == 4 * CHUNK + 5


def test_chunks_are_made_when_first_needed_and_then_used_again(pool: BufferPool) -> None:
    first = take(pool, 1)
    memory = first[0].memory
    pool.deallocate(first)
    assert take(pool, 1)[0].memory is memory


def test_a_chunk_that_is_lent_keeps_no_memory_of_its_own(pool: BufferPool) -> None:
    (chunk,) = take(pool, 1)
    memory = chunk.memory
    chunk.lend()
    assert chunk.memory is not memory


def test_more_than_the_whole_pool_is_refused_at_once(pool: BufferPool) -> None:
    for ask in (pool.try_allocate, lambda n: pool.allocate(n, soon())):
        with pytest.raises(RecordTooLargeError, match=r"buffer\.memory: 320 bytes are needed at once, but buffer.memory is 256"):
            ask(5)


def test_the_deadline_ends_a_wait_with_what_was_free(pool: BufferPool) -> None:
    take(pool, 3)
    with pytest.raises(
        BufferExhaustedError, match=r"timed out after .* waiting for 128 bytes \(64 of 256 bytes are free, 0 appends wait ahead"
    ):
        pool.allocate(2, time.monotonic())
    assert pool.queued() == 0
    assert pool.try_allocate(1) is not None


def test_a_deadline_far_away_is_no_error(pool: BufferPool, appenders: Appenders) -> None:
    held = take(pool, 4)
    waiting = appenders.threads.submit(pool.allocate, 1, time.monotonic() + 2**62)
    wait_until(lambda: pool.queued() == 1)
    pool.deallocate(held)
    assert len(waiting.result(FOREVER)) == 1


def test_close_wakes_who_waits(pool: BufferPool, appenders: Appenders) -> None:
    take(pool, 4)
    waiting = [appenders.start(1), appenders.start(4)]
    pool.close()
    for waiter in waiting:
        with pytest.raises(UsageError, match="closed"):
            waiter.result(FOREVER)


def test_more_given_back_than_was_allocated_is_an_error(pool: BufferPool) -> None:
    chunks = take(pool, 2)
    pool.deallocate(chunks)
    with pytest.raises(UsageError, match="more chunks were returned than were allocated"):
        pool.deallocate(chunks)
