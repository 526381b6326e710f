"""What a log takes it gives back, at the offsets it said, from a folder as from memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_types import LogConfig
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.log.logs import UNCOMMITTED, batch, failing, open_log, opened

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


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
