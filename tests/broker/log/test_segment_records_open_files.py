"""A broker of a thousand partitions does not use up the files that a process may have open."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spark_kafka_sink.broker.log import segment_records
from spark_kafka_sink.broker.log.log_types import LogConfig
from tests.broker.log.logs import batch, opened, stored, values


def open_below(folder: Path) -> int:
    links = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.exists()]
    return sum(link.is_relative_to(folder) for link in links)


def test_more_logs_than_may_be_open_are_written_and_read_like_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_records, "_kept_open", threading.Semaphore(1))
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        for value in (b"x", b"y"):
            one.append_as_leader(batch(value), 0)
            other.append_as_leader(batch(value), 0)

        assert open_below(tmp_path) == 1
        assert values(stored(one)) == values(stored(other)) == [b"x", b"y"]


def test_a_file_that_is_closed_makes_room_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = threading.Semaphore(1)
    monkeypatch.setattr(segment_records, "_kept_open", room)
    with opened(tmp_path / "a", LogConfig(segment_bytes=140)) as log:
        for _ in range(3):
            log.append_as_leader(batch(b"x" * 60), 0)  # a segment for each
            assert open_below(tmp_path) == 1

    assert open_below(tmp_path) == 0
    assert room.acquire(blocking=False)
