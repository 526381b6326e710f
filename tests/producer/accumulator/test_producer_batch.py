"""A sealed batch and the memory it holds on to."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.records.compression import Codec
from tests.producer.parts import Parts, make_parts


def open_batch(parts: Parts) -> OpenBatch:
    parts.append(parts.tally(), [b"x" * 4000], [0])
    (batch,) = parts.drain_all()
    return batch


def used(parts: Parts) -> int:
    return parts.pool.total - parts.pool.available


@pytest.mark.parametrize("chunk_size", [256, 8192])  # the records stay where they are encoded, and are copied
def test_once_a_batch_is_compressed_only_its_compressed_bytes_take_memory(chunk_size: int) -> None:
    parts = make_parts(chunk_size=chunk_size, compression_type="lz4")
    sealed = SealedBatch(open_batch(parts), Codec.LZ4, 1)
    before = used(parts)
    sealed.free_raw(parts.pool)
    assert used(parts) == min(before, chunk_size)
    sealed.free(parts.pool)
    assert used(parts) == 0


def test_without_compression_the_records_take_memory_until_the_batch_is_finished() -> None:
    parts = make_parts()
    sealed = SealedBatch(open_batch(parts), Codec.NONE, 0)
    before = used(parts)
    sealed.free_raw(parts.pool)
    assert used(parts) == before > 4000
    sealed.free(parts.pool)
    assert used(parts) == 0


def test_a_batch_that_fails_between_its_sealing_and_its_end_is_freed_once() -> None:
    """The sender's thread may fail in between: then what it had opened is given back, and not what it had sealed too."""
    parts = make_parts(compression_type="lz4")
    batch = open_batch(parts)
    sealed = SealedBatch(batch, Codec.LZ4, 1)
    sealed.free_raw(parts.pool)
    batch.memory.give_back(parts.pool)
    sealed.free(parts.pool)
    assert used(parts) == 0
