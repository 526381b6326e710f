"""BufferPool: bounded, first come first served, every wait ends. Any history of it: test_buffer_pool_model.py."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError, UsageError
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool, Chunk
from tests.waiting import wait_until

CHUNK = 64
FOREVER = 60.0


def soon() -> float:
    return time.monotonic() + FOREVER


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool(4 * CHUNK, CHUNK)


def take(pool: BufferPool, n_chunks: int) -> list[Chunk]:
    chunks = pool.try_allocate(n_chunks)
    assert chunks is not None
    return chunks


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


def test_a_deadline_far_away_is_no_error(pool: BufferPool) -> None:
    held = take(pool, 4)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.allocate, 1, time.monotonic() + 2**62)
        wait_until(lambda: pool.queued() == 1)
        pool.deallocate(held)
        assert len(waiting.result(FOREVER)) == 1


def test_more_given_back_than_was_allocated_is_an_error(pool: BufferPool) -> None:
    chunks = take(pool, 2)
    pool.deallocate(chunks)
    with pytest.raises(UsageError, match="more chunks were returned than were allocated"):
        pool.deallocate(chunks)
