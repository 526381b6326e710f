"""A disk that takes no more: the append fails, nothing of it stays, and the log goes on when there is room."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.broker.log.log_types import LogConfig
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.log.logs import batch, failing, open_log, opened, stored, values

FULL = OSError(errno.ENOSPC, "No space left on device")


class Disk:
    """Takes `room` more bytes of segments, then what fits of a write, then nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        self._pwritev = os.pwritev
        monkeypatch.setattr(os, "pwritev", self.pwritev)

    def pwritev(self, fd: int, buffers: Sequence[Any], position: int) -> int:
        data = b"".join(buffers)[: self.room]
        if not data:
            raise FULL
        self.room -= len(data)
        return self._pwritev(fd, [data], position)


@pytest.mark.parametrize("room", [0, 1, 20, 61, 70])
def test_a_partial_write_is_cut_off(on_disk: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    disk = Disk(monkeypatch)
    with opened(on_disk) as log:
        log.append_as_leader(batch(b"before"), 0)
        disk.room = room
        with failing(ErrorCode.KAFKA_STORAGE_ERROR, "No space left"):
            log.append_as_leader(batch(b"lost", producer_id=1, producer_epoch=0, base_sequence=0), 1)
        assert log.log_end_offset == 1
        assert (on_disk / f"{0:020d}.log").stat().st_size == log.size
        assert values(stored(log)) == [b"before"]
        disk.room = 1000
        info = log.append_as_leader(batch(b"again", producer_id=1, producer_epoch=0, base_sequence=0), 1)
        assert (info.base_offset, info.duplicate) == (1, False)
        assert values(stored(log)) == [b"before", b"again"]


def test_a_write_in_pieces_is_whole(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: pwritev(fd, [b"".join(buffers)[:7]], position))
    with opened(on_disk) as log:
        for i in range(3):
            log.append_as_leader(batch(b"value %d" % i), 0)
        assert values(stored(log)) == [b"value 0", b"value 1", b"value 2"]


def test_a_partial_write_that_cannot_be_cut_off_is_written_over(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    with opened(on_disk) as log:
        log.append_as_leader(batch(b"before"), 0)
        disk.room = 20
        with monkeypatch.context() as broken, failing(ErrorCode.KAFKA_STORAGE_ERROR):
            broken.setattr(os, "ftruncate", _no_space)
            log.append_as_leader(batch(b"lost"), 0)
        disk.room = 1000
        log.append_as_leader(batch(b"again"), 0)
        assert values(stored(log)) == [b"before", b"again"]


def test_no_new_segment_no_append(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(on_disk, LogConfig(segment_bytes=100))
    log.append_as_leader(batch(b"x" * 20), 0)
    with monkeypatch.context() as full:
        full.setattr(os, "open", _no_space)
        for _ in range(2):
            with failing(ErrorCode.KAFKA_STORAGE_ERROR):
                log.append_as_leader(batch(b"y" * 20), 0)
    log.append_as_leader(batch(b"z" * 20), 0)
    assert values(stored(log)) == [b"x" * 20, b"z" * 20]
    log.close()
    with opened(on_disk) as log:
        assert values(stored(log)) == [b"x" * 20, b"z" * 20]


def _no_space(*_: Any, **__: Any) -> Any:
    raise FULL


def test_who_plays_a_full_disk_is_heard(folder: Path | None) -> None:
    full = False

    def check(size: int) -> None:
        assert size == len(batch(b"v"))
        if full:
            raise FULL

    with opened(folder, check_disk=check) as log:
        log.append_as_leader(batch(b"v"), 0)
        full = True
        with failing(ErrorCode.KAFKA_STORAGE_ERROR):
            log.append_as_leader(batch(b"v"), 0)
        full = False
        assert log.append_as_leader(batch(b"v"), 0).base_offset == 1
