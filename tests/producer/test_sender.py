"""What the sender decides by itself; the rest of it is seen at work in test_producer.py and tests/faults."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.sender import compression_ratio
from spark_kafka_sink.records.compression import Codec
from tests.producer.parts import make_parts


def sealed(codec: Codec, value: bytes) -> SealedBatch:
    parts = make_parts()
    parts.append(parts.scope(), [value], [0])
    (batch,) = parts.drain_all()
    assert isinstance(batch, OpenBatch)
    return SealedBatch(batch, codec, 1)


def test_the_ratio_goes_up_at_once_and_down_by_and_by() -> None:
    batch = sealed(Codec.ZSTD, b"x" * 100_000)
    ratio = batch.size / batch.raw_size
    assert ratio < 0.1
    assert compression_ratio(0.01, batch) == pytest.approx(max(ratio, 0.009 + ratio / 10))
    assert compression_ratio(1.0, batch) == pytest.approx(0.9 + ratio / 10)


def test_without_compression_a_batch_is_as_large_as_it_is() -> None:
    assert compression_ratio(0.5, sealed(Codec.NONE, b"x" * 1000)) == 1.0
