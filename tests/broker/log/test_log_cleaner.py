"""Compaction leaves of each key the last record, at its offset; what is active or undecided it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_cleaner import compact
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_types import LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from tests.broker.log.logs import NOW, open_log, opened, stored

DAY = 86_400_000
COMPACT = LogConfig(compact=True, delete=False, segment_bytes=2000)
Row = tuple[bytes, bytes | None]


def put(log: UnifiedLog, *rows: Row, **fields: int) -> int:
    data = small_batch([NewRecord(key, value, NOW) for key, value in rows], **fields)  # type: ignore[arg-type]
    return log.append_as_leader(data, 0).base_offset


def records(log: UnifiedLog) -> list[Record]:
    return [record for one in stored(log) if not one.is_control for record in one.records()]


def shown(log: UnifiedLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


@pytest.mark.parametrize("codec", [None, Codec.LZ4, Codec.ZSTD, Codec.GZIP])
def test_the_last_of_each_key_stays_where_it_was(folder: Path | None, codec: Codec | None) -> None:
    config = LogConfig(compact=True, delete=False, compression_type=codec)
    with opened(folder, config) as log:
        put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        put(log, (b"b", b"2"), (b"c", b"1"))
        log.roll()
        put(log, (b"c", b"2"))
        assert compact(log, NOW) > 0
        assert shown(log) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1"), (5, b"c", b"2")]
        assert compact(log, NOW) == 0
        assert put(log, (b"d", b"1")) == 6
    if folder is not None:
        with opened(folder, config) as log:
            assert [offset for offset, *_ in shown(log)] == [2, 3, 4, 5, 6]


def test_a_tombstone_outlives_what_it_deletes_for_a_day(folder: Path | None) -> None:
    with opened(folder, COMPACT) as log:
        put(log, (b"a", b"1"), (b"b", b"1"))
        put(log, (b"a", None))
        log.roll()
        compact(log, NOW + DAY)
        assert shown(log) == [(1, b"b", b"1"), (2, b"a", None)]
        compact(log, NOW + DAY + 1)
        assert shown(log) == [(1, b"b", b"1")]


def test_aborted_records_go_and_open_ones_stop_the_cleaner(folder: Path | None) -> None:
    with opened(folder, COMPACT) as log:
        put(log, (b"a", b"kept"))
        put(log, (b"a", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_control(EndTransactionMarker(1, 0, False, 0), 0)
        put(log, (b"b", b"committed"), producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
        log.append_control(EndTransactionMarker(1, 0, True, 0), 0)
        log.roll()
        put(log, (b"a", b"open"), producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
        log.roll()
        put(log, (b"b", b"last"))
        log.roll()
        compact(log, NOW)
        assert [value for _, _, value in shown(log)] == [b"kept", b"committed", b"open", b"last"]
        log.append_control(EndTransactionMarker(2, 0, True, 0), 0)
        log.roll()
        compact(log, NOW + 2 * DAY)
        assert [value for _, _, value in shown(log)] == [b"open", b"last"]


@pytest.mark.parametrize("stage", ["cleaned", "swap", "deleted"])
def test_a_crash_in_between_leaves_the_old_or_the_new(on_disk: Path, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(on_disk, COMPACT)
    for i in range(6):
        put(log, (b"%d" % (i % 2), b"%d" % i))
        log.roll()
    step, calls_before = {"cleaned": ("rename", 0), "swap": ("delete", 0), "deleted": ("rename", 1)}[stage]
    monkeypatch.setattr(LogSegment, step, _crash_after(calls_before, getattr(LogSegment, step)))
    with pytest.raises(ZeroDivisionError):
        compact(log, NOW)
    monkeypatch.undo()
    log.release()
    with opened(on_disk, COMPACT) as log:
        due = [b"%d" % i for i in range(6)] if stage == "cleaned" else [b"4", b"5"]
        assert [value for _, _, value in shown(log)] == due
        compact(log, NOW)
        assert [value for _, _, value in shown(log)] == [b"4", b"5"]
        assert log.log_end_offset == 6
    assert not [path for path in on_disk.iterdir() if path.suffix in (".cleaned", ".swap")]


def _crash_after(calls: int, method: Callable[..., object]) -> Callable[..., object]:
    left = iter(range(calls))

    def crash(*arguments: object) -> object:
        if next(left, None) is None:
            raise ZeroDivisionError
        return method(*arguments)

    return crash


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
rows = st.tuples(keys, st.none() | st.sampled_from([b"1", b"2"]))


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=12),
    rolls=st.sets(st.integers(0, 11)),
    again=st.booleans(),
)
def test_a_reader_of_the_compacted_log_ends_where_one_of_the_whole_log_does(
    batches: Sequence[Sequence[Row]], rolls: set[int], again: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log") / "topic-0"
    log = open_log(folder, COMPACT)
    for i, batch_rows in enumerate(batches):
        put(log, *batch_rows)
        if i in rolls:
            log.roll()
        if i in rolls and again:
            compact(log, NOW)
    compact(log, NOW)
    log.release()
    with opened(folder, COMPACT) as log:
        flat = [row for batch_rows in batches for row in batch_rows]
        assert {record.key: record.value for record in records(log)} == dict(flat)
        assert all(flat[record.offset] == (record.key, record.value) for record in records(log))
        assert log.log_end_offset == len(flat)
