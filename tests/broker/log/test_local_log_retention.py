"""What a log lets go: whole segments, the oldest first, by size, by age, and what lies before its start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_kafka_sink.broker.log.log_types import LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from tests.broker.log.logs import NOW, batch, opened

ONE = len(batch(b"v" * 20))
KEEP = LogConfig(segment_bytes=2 * ONE, retention_ms=-1)


def fill(log: UnifiedLog, count: int = 10) -> None:
    """Two batches a segment, one record each, a second from one to the next."""
    for i in range(count):
        log.append_as_leader(batch(b"v" * 20, timestamp=NOW + 1000 * i), 0)


@pytest.mark.parametrize(
    ("limit", "start"), [(10 * ONE, 0), (8 * ONE, 2), (8 * ONE - 1, 2), (6 * ONE + 1, 2), (6 * ONE, 4), (1, 8), (0, 10)]
)
def test_by_size_at_least_the_limit_stays(folder: Path | None, limit: int, start: int) -> None:
    with opened(folder, replace(KEEP, retention_bytes=limit)) as log:
        fill(log)
        log.enforce_retention(NOW)
        assert log.log_start_offset == start
        assert log.log_end_offset == 10


@pytest.mark.parametrize(("age", "start"), [(9_000, 0), (8_000, 0), (7_999, 2), (5_000, 4), (1, 8), (0, 8), (-1, 0)])
def test_by_age_of_a_segments_latest_record(folder: Path | None, age: int, start: int) -> None:
    config = LogConfig(segment_bytes=2 * ONE, retention_ms=age)
    with opened(folder, config) as log:
        fill(log)
        log.enforce_retention(NOW + 9_000)
        assert log.log_start_offset == start


def test_the_active_segment_goes_too_and_leaves_the_offsets(folder: Path | None) -> None:
    with opened(folder, LogConfig(retention_ms=1000)) as log:
        fill(log)
        assert log.enforce_retention(NOW + 10_001) == 1
        assert (log.log_start_offset, log.log_end_offset, log.size) == (10, 10, 0)
        assert log.enforce_retention(NOW + 20_000) == 0
        assert log.append_as_leader(batch(b"v"), 0).base_offset == 10
    if folder is not None:
        assert [path.name for path in folder.glob("*.log")] == [f"{10:020d}.log"]
