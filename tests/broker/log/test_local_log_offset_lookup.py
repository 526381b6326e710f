"""Which offset a time stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.log.local_log import ListOffsetsTimestamp
from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.records.small_batch import NewRecord, small_batch
from tests.broker.log.logs import opened

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=80, message_timestamp_after_max_ms=2**62)


def timed(*timestamps: int) -> bytes:
    return small_batch([NewRecord(b"k", b"value", timestamp) for timestamp in timestamps])


def test_the_ends(folder: Path | None) -> None:
    with opened(folder) as log:
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.EARLIEST) == (-1, 0, -1)
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.LATEST) == (-1, 0, -1)
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.MAX_TIMESTAMP) is None
        assert log.fetch_offset_by_timestamp(0) is None
        log.append_as_leader(timed(50, 70, 60), 4)
        log.append_as_leader(timed(70, 10), 5)
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.EARLIEST) == (-1, 0, 4)
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.EARLIEST_LOCAL) == (-1, 0, 4)
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.LATEST) == (-1, 5, 5)
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.MAX_TIMESTAMP) == (70, 1, 4)
        assert log.fetch_offset_by_timestamp(ListOffsetsTimestamp.LATEST_TIERED) == (-1, -1, -1)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=3), min_size=1, max_size=25),
    start=st.integers(0, 10),
    restart=st.booleans(),
    in_memory=st.booleans(),
)
def test_the_first_record_that_is_not_earlier(
    batches: list[list[int]], start: int, restart: bool, in_memory: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = None if in_memory else tmp_path_factory.mktemp("log") / "topic-0"
    times = [timestamp for one in batches for timestamp in one]
    start = min(start, len(times))
    with opened(folder, SMALL) as log:
        for one in batches:
            log.append_as_leader(timed(*one), 0)
        log.delete_records_before(start)
        _check(log, times, start)
    if folder is not None and restart:
        with opened(folder, SMALL) as log:
            _check(log, times, start)


def _check(log: object, times: list[int], start: int) -> None:
    for wanted in range(52):
        due = next(((time, i, 0) for i, time in enumerate(times) if i >= start and time >= wanted), None)
        assert log.fetch_offset_by_timestamp(wanted) == due  # type: ignore[attr-defined]
