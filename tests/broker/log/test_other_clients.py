"""Batches as another client's writer makes them are taken as they are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.records.compression import Codec
from tests.broker.log.logs import NOW, opened, stored

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas with importlib.resources.read_text
    from kafka.record.default_records import DefaultRecordBatchBuilder


def kafka_python_batch(codec: Codec, count: int, **producer: Any) -> bytes:
    fields = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "is_transactional": False, **producer}
    builder = DefaultRecordBatchBuilder(2, int(codec), batch_size=1_000_000, **fields)
    for i in range(count):
        builder.append(i, NOW + i, b"key %d" % i, b"value %d" % i * (i % 7), [("header", b"h")] if i % 3 else [])
    return bytes(builder.build())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_kafka_python_to_the_log(folder: Path | None, codec: Codec) -> None:
    count = 200
    written = kafka_python_batch(codec, count, producer_id=4, producer_epoch=0, base_sequence=0)
    with opened(folder) as log:
        log.append_as_leader(written, 0)
        (one,) = stored(log)
        assert bytes(one.payload) == written[61:]
        rows = [(record.offset, record.timestamp, record.key, record.value) for record in one.records()]
        assert rows == [(i, NOW + i, b"key %d" % i, b"value %d" % i * (i % 7)) for i in range(count)]
        assert log.append_as_leader(written, 0).duplicate
