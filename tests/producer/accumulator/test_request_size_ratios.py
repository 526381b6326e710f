"""How full a request becomes of batches that are still to be compressed."""

from __future__ import annotations

import hashlib

import pytest

from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.request_size import CompressionRatios, batch_overhead
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec
from tests.producer.parts import Parts, make_parts

EASY = b"x" * 100_000
HARD = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(3000))

OVERHEAD = batch_overhead("t")


def in_request(batch: SealedBatch) -> int:
    return batch.size - HEADER_SIZE + OVERHEAD


def opened(parts: Parts, value: bytes, topic: str = "t") -> OpenBatch:
    parts.append(parts.tally(), [value], [0], topic)
    (batch,) = parts.drain_all()
    return batch


def test_the_ratio_goes_up_at_once_and_down_by_and_by() -> None:
    parts, ratios = make_parts(), CompressionRatios()
    easy, hard = opened(parts, EASY), opened(parts, HARD)
    assert ratios.size(easy) == easy.size + OVERHEAD
    sizes = []
    for _ in range(40):
        ratios.sealed(sealed := SealedBatch(easy, Codec.ZSTD, 1))
        sizes.append(ratios.size(easy))
    assert sizes[0] == pytest.approx(0.9 * easy.size + 0.1 * sealed.size, abs=OVERHEAD)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(sealed.size, rel=0.01, abs=0.02 * easy.size)
    ratios.sealed(sealed := SealedBatch(hard, Codec.ZSTD, 1))
    assert ratios.size(hard) == pytest.approx(in_request(sealed))


def test_one_topics_ratio_is_not_anothers() -> None:
    parts, ratios = make_parts(), CompressionRatios()
    for _ in range(40):
        ratios.sealed(SealedBatch(opened(parts, EASY), Codec.ZSTD, 1))
    hard = opened(parts, HARD, topic="u")
    assert ratios.size(hard) == hard.size + OVERHEAD


def test_a_batch_that_was_compressed_is_as_large_as_it_is() -> None:
    parts, ratios = make_parts(), CompressionRatios()
    sealed = SealedBatch(opened(parts, EASY), Codec.ZSTD, 1)
    ratios.sealed(sealed)
    assert ratios.size(sealed) == in_request(sealed)


def test_without_compression_so_is_every_batch() -> None:
    parts, ratios = make_parts(), CompressionRatios()
    batch = opened(parts, b"x" * 100)
    ratios.sealed(SealedBatch(batch, Codec.NONE, 0))
    assert ratios.size(batch) == batch.size + OVERHEAD


def test_a_batch_that_is_compressed_and_waits_is_as_large_as_it_will_go() -> None:
    parts, ratios = make_parts(), CompressionRatios()
    batch = opened(parts, EASY)
    batch.sealed = SealedBatch(batch, Codec.ZSTD, 1)
    assert ratios.size(batch) == in_request(batch.sealed)


def test_a_request_takes_as_many_batches_as_it_will_hold_compressed() -> None:
    parts, ratios = make_parts(), CompressionRatios()
    for _ in range(40):
        ratios.sealed(SealedBatch(opened(parts, EASY), Codec.ZSTD, 1))
    scope = parts.tally()
    for topic in ("t", "u"):
        for partition in range(10):
            parts.append(scope, [EASY], [partition], topic)
    parts.accumulator.flush(None)
    parts.ready_nodes()
    taken = parts.accumulator.drain(0, 250_000, ratios.size)
    assert sum(batch.queue.topic == "t" for batch in taken) == 10
    assert sum(batch.queue.topic == "u" for batch in taken) == 2
