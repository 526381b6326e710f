"""Logs to test with: a clock that stands, batches of a few records, and a look at all that a log holds."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import BatchHeader, is_whole, read_header
from spark_kafka_sink.broker.log.log_types import IsolationLevel, LogConfig, LogHooks, PartitionName
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.small_batches import FetchedBatch, NewRecord, decode_batches, small_batch

NOW = 1_700_000_000_000
TOPIC_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED


class Clock:
    """Wall time in ms that only the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def open_log(
    folder: Path | None,
    config: LogConfig | None = None,
    clock: Callable[[], int] | None = None,
    *,
    verify_transactions: bool = False,
    **hooks: Any,
) -> UnifiedLog:
    name = PartitionName("topic", 0, TOPIC_ID)
    how = LogHooks(clock or Clock(), **hooks)
    return UnifiedLog(folder, name, config or LogConfig(), how, verify_transactions=verify_transactions)


@contextmanager
def opened(folder: Path | None, config: LogConfig | None = None, **more: Any) -> Iterator[UnifiedLog]:
    log = open_log(folder, config, **more)
    try:
        yield log
    finally:
        log.close()


def batch(*values: bytes | None, timestamp: int = NOW, **fields: Any) -> bytes:
    """One record for each value, with the keys k0, k1 ..."""
    return small_batch([NewRecord(b"k%d" % i, value, timestamp) for i, value in enumerate(values)], **fields)


def headers_in(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Of each whole batch in `data`, with its position."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if not is_whole(header, len(data) - position):
            return
        yield position, header
        position += header.size


def stored(log: UnifiedLog, isolation: IsolationLevel = UNCOMMITTED, start: int | None = None) -> list[FetchedBatch]:
    """Every batch from the log's start on, as a consumer fetches them."""
    offset = log.log_start_offset if start is None else start
    found: list[FetchedBatch] = []
    while fetched := list(decode_batches(b"".join(log.read(offset, 1000, isolation).records), cut_off=True)):
        found += fetched
        offset = found[-1].last_offset + 1
    return found


def committed_values(log: UnifiedLog) -> list[bytes | None]:
    """As a consumer that reads committed does it: it drops what the answers call aborted."""
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while batches := stored(log, COMMITTED, offset)[:1]:
        (one,) = batches
        aborted = log.read(offset, 1, COMMITTED).aborted_transactions
        assert aborted is not None
        hidden = one.is_transactional and any(
            txn.producer_id == one.producer_id and txn.first_offset <= one.base_offset for txn in aborted
        )
        rows = [] if hidden or one.is_control else one.records()
        found += [record.value for record in rows if record.offset >= log.log_start_offset]
        offset = one.last_offset + 1
    return found


def values(batches: Sequence[FetchedBatch]) -> list[bytes | None]:
    return [record.value for one in batches if not one.is_control for record in one.records()]


@contextmanager
def failing(code: ErrorCode, text: str = "") -> Iterator[None]:
    """The block ends with this error."""
    with pytest.raises(ApiException, match=text or None) as raised:
        yield
    assert raised.value.code is code, raised.value
