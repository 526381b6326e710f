"""What a log takes it gives back, at the offsets it said, from a folder as from memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.log.logs import NOW, UNCOMMITTED, batch, failing, open_log, opened, stored, values

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def test_the_callers_memory_is_its_own_again(folder: Path | None) -> None:
    data = bytearray(batch(b"before"))
    with opened(folder) as log:
        log.append_as_leader(memoryview(data), 0)
        data[:] = bytes(len(data))
        assert values(stored(log)) == [b"before"]


def test_a_read_crosses_segments(folder: Path | None) -> None:
    with opened(folder, SMALL) as log:
        for i in range(40):
            log.append_as_leader(batch(b"%d" % i * 20), 0)
        assert values(stored(log)) == [b"%d" % i * 20 for i in range(40)]
        assert values(stored(log, start=17)) == [b"%d" % i * 20 for i in range(17, 40)]


@pytest.mark.parametrize("offset", [-1, 3])
def test_an_offset_that_is_not_there_is_out_of_range(folder: Path | None, offset: int) -> None:
    with opened(folder) as log:
        log.append_as_leader(batch(b"a", b"b"), 0)
        with failing(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.read(offset, 1000, UNCOMMITTED)
        assert log.read(2, 1000, UNCOMMITTED).records == []


def test_one_batch_comes_whole_however_little_is_asked_for(folder: Path | None) -> None:
    written = batch(b"x" * 300)
    with opened(folder) as log:
        log.append_as_leader(written, 0)
        log.append_as_leader(written, 0)
        assert log.read(0, 10, UNCOMMITTED).size == len(written)
        assert log.read(0, 10, UNCOMMITTED, min_one_batch=False).records == []
        assert log.read(0, len(written), UNCOMMITTED, min_one_batch=False).size == len(written)
        assert log.read(0, len(written) + 100, UNCOMMITTED).size == len(written) + 100  # cut off, as Kafka's is
        assert log.read(1, 10_000, UNCOMMITTED).size == len(written)


def test_what_was_read_outlives_the_segment(folder: Path | None) -> None:
    with opened(folder, SMALL) as log:
        for i in range(20):
            log.append_as_leader(batch(b"%d" % i * 20), 0)
        read = log.read(0, 1000, UNCOMMITTED).records
        before = b"".join(read)
        log.delete_records_before(-1)
        assert b"".join(read) == before
        assert log.log_start_offset == log.log_end_offset == 20
    assert b"".join(read) == before


def test_who_waits_is_told_of_each_append_but_not_of_a_duplicate(folder: Path | None) -> None:
    told: list[int] = []
    with opened(folder, on_advance=lambda: told.append(len(told))) as log:
        for _ in range(2):
            log.append_as_leader(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0), 0)
    assert told == [0]


def test_a_segment_is_rolled_for_its_age_by_the_records_own_time(folder: Path | None) -> None:
    with opened(folder, LogConfig(segment_ms=1000)) as log:
        for timestamp in (5_000, 6_000, 6_001, 6_002):
            log.append_as_leader(batch(b"v", timestamp=timestamp), 0)
        assert log.cleanable(NOW).end_offset == 2  # where the active segment begins


def test_who_is_late_with_an_older_leader_epoch_changes_none_that_is_known(folder: Path | None) -> None:
    with opened(folder) as log:
        for epoch in (1, 2, 1):
            log.append_as_leader(batch(b"v"), epoch)

        assert [one.leader_epoch for one in stored(log)] == [1, 2, 2]
        assert [log.end_offset_for_epoch(epoch) for epoch in (1, 2)] == [(1, 1), (2, 3)]


def test_another_leader_epoch_is_kept_where_it_began(folder: Path | None) -> None:
    with opened(folder) as log:
        for epoch in (1, 1, 4, 9):
            log.append_as_leader(batch(b"v"), epoch)
        assert log.end_offset_for_epoch(1) == (1, 2)
        assert log.end_offset_for_epoch(3) == (1, 2)
        assert log.end_offset_for_epoch(4) == (4, 3)
        assert log.end_offset_for_epoch(9) == (9, 4)
        assert log.end_offset_for_epoch(0) == (0, 0)
        assert log.end_offset_for_epoch(10) is None
        assert log.latest_epoch == 9


def test_a_closed_log_says_so_and_a_deleted_one_that_there_is_none(folder: Path | None) -> None:
    log = open_log(folder)
    log.close()
    log.close()
    with failing(ErrorCode.KAFKA_STORAGE_ERROR):
        log.append_as_leader(batch(b"v"), 0)
    log.delete()
    with failing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        log.read(0, 1, UNCOMMITTED)


def test_a_folder_of_another_topic_of_that_name_is_moved_away(on_disk: Path) -> None:
    with opened(on_disk) as log:
        log.append_as_leader(batch(b"v"), 0)
    (on_disk / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
    with opened(on_disk) as log:
        assert log.log_end_offset == 0
    assert [path.name.endswith("-stray") for path in sorted(on_disk.parent.iterdir())] == [False, True]


def test_the_first_error_of_opening_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ApiException) as raised:
        open_log(tmp_path / "file" / "topic-0")
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
