"""Where a partition begins and ends, and the first record of a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_kafka_sink.broker.handlers.list_offsets import handle_list_offsets
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.partition_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from spark_kafka_sink.records.small_batch import NewRecord, small_batch
from tests.broker.rig import Rig

BASE_MS = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def asked(rig: Rig, timestamp: int, *, version: int = 10, isolation: int = 0, times: int = 1, epoch: int = -1) -> Any:
    partitions = [ListOffsetsPartition(0, epoch, timestamp)] * times
    body = ListOffsetsRequest(-1, isolation, [ListOffsetsTopic("t", partitions)])
    return rig.ask(handle_list_offsets, body, ApiKey.LIST_OFFSETS, version).answer.topics[0].partitions[0]


@contextmanager
def rig_with_records() -> Iterator[Rig]:
    """Three records a second apart, the middle one in a batch with the last, and an open transaction behind them."""
    with Rig() as rig:
        rig.cluster.create_topic("t", configs={"retention.ms": "-1"})
        fill(rig.log("t"))
        yield rig


def fill(log: UnifiedLog) -> None:
    log.append_as_leader(small_batch([NewRecord(None, b"a", BASE_MS)]), 0)
    log.append_as_leader(small_batch([NewRecord(None, b"b", BASE_MS + 1000), NewRecord(None, b"c", BASE_MS + 2000)]), 0)
    guard = log.maybe_start_transaction_verification(5, 0, 0, supports_epoch_bump=True)
    record = NewRecord(None, b"d", BASE_MS + 3000)
    batch = small_batch([record], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(batch, 0, guard=guard)


@pytest.mark.parametrize(
    ("timestamp", "isolation", "expected"),
    [
        (EARLIEST, 0, (-1, 0)),
        (EARLIEST_LOCAL, 0, (-1, 0)),
        (LATEST, 0, (-1, 4)),
        (LATEST, 1, (-1, 3)),
        (LATEST_TIERED, 0, (-1, -1)),
        (MAX_TIMESTAMP, 0, (BASE_MS + 3000, 3)),
        (BASE_MS, 0, (BASE_MS, 0)),
        (BASE_MS + 1, 0, (BASE_MS + 1000, 1)),
        (BASE_MS + 1001, 0, (BASE_MS + 2000, 2)),
        (BASE_MS + 2001, 0, (BASE_MS + 3000, 3)),
        (BASE_MS + 2001, 1, (-1, -1)),
        (BASE_MS + 3001, 0, (-1, -1)),
    ],
)
def test_an_offset_for_each_kind_of_question(timestamp: int, isolation: int, expected: tuple[int, int]) -> None:
    with rig_with_records() as rig:
        found = asked(rig, timestamp, isolation=isolation)
        assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.NONE, *expected)


@pytest.mark.parametrize(("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-6, 10)])
def test_a_question_that_the_version_does_not_know_is_refused(timestamp: int, version: int) -> None:
    with rig_with_records() as rig:
        assert asked(rig, timestamp, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_partition_asked_for_twice_is_refused() -> None:
    with rig_with_records() as rig:
        assert asked(rig, LATEST, times=2).error_code == ErrorCode.INVALID_REQUEST


def test_a_client_with_a_newer_epoch_is_refused() -> None:
    with rig_with_records() as rig:
        assert asked(rig, LATEST, epoch=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
