"""The bytes of a segment: batches end to end, in memory or in a file (Kafka's FileRecords). Both behave alike."""

from __future__ import annotations

import os
import resource
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from spark_kafka_sink.broker.log.batch import BatchHeader, EndTransactionMarker, is_whole, parse_marker, read_header
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Buffer
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import decode_batches

_MANY_BATCHES = 64


# One index interval, and space for the header of a batch that starts at its end.
_CHUNK = 8 * 1024


class MemoryRecords:
    """Records in memory, with the methods of FileRecords. Each batch is copied once and returned without a copy."""

    def __init__(self) -> None:
        self._batches: list[bytes] = []
        self._positions: list[int] = []
        self.size = 0

    def append(self, buffers: Sequence[Buffer]) -> None:
        batch = b"".join(buffers)
        self._batches.append(batch)
        self._positions.append(self.size)
        self.size += len(batch)

    def read(self, position: int, size: int) -> list[Buffer]:
        found: list[Buffer] = []
        end = min(position + size, self.size)
        at = max(bisect_right(self._positions, position) - 1, 0)
        while position < end:
            start, batch = self._positions[at], self._batches[at]
            last = min(end - start, len(batch))
            whole = position == start and last == len(batch)
            found.append(batch if whole else memoryview(batch)[position - start : last])
            position = start + last
            at += 1
        # A socket takes at most 1,024 buffers per call, and each one costs time.
        return found if len(found) <= _MANY_BATCHES else [b"".join(found)]

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        at = max(bisect_right(self._positions, position) - 1, 0)
        while at < len(self._batches):
            yield self._positions[at], read_header(self._batches[at])
            at += 1

    def truncate_to(self, size: int) -> None:
        kept = bisect_right(self._positions, size - 1)
        del self._batches[kept:], self._positions[kept:]
        self.size = size

    def flush(self) -> None:
        """Does nothing: memory does not outlive the process."""

    def rename(self, path: Path) -> None:
        """Does nothing: memory has no name."""

    def close(self) -> None:
        """Does nothing: memory needs no closing."""

    def delete(self) -> None:
        self.truncate_to(0)


_soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
_kept_open = threading.Semaphore(10_000 if _soft_limit == resource.RLIM_INFINITY else _soft_limit // 2)
"""Half of the process's limit of open files, for all logs in it. The other half is for connections and other files."""


class FileRecords:
    """Records in a file. Reads copy (pread), so later changes of the file do not affect them. Guarded by the log's lock.

    File system errors are raised as OSError.

    Only the segment that is written to keeps its file open, from the first append on, and only up to a limit (`_kept_open`).
    Otherwise, a broker with some thousand segments would reach the usual limit of 1,024 open files. It could not even accept a
    connection. Opening a file adds 5 us to a read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self.size = path.stat().st_size if path.exists() else 0

    @classmethod
    def created(cls, path: Path) -> FileRecords:
        """Creates an empty file. An existing one is overwritten."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        return cls(path)

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Appends one batch, all or nothing: after an OSError the size is unchanged."""
        with self._opened(os.O_RDWR | os.O_CREAT, keep=True) as fd:
            try:
                written = _write_all(fd, buffers, self.size)
            except OSError:
                self.truncate_to(self.size)
                raise
        self.size += written

    def read(self, position: int, size: int) -> list[Buffer]:
        """Returns these bytes, or fewer at the end."""
        size = min(size, self.size - position)
        if size <= 0:
            return []
        with self._opened(os.O_RDONLY) as fd:
            return [os.pread(fd, size, position)]

    @contextmanager
    def _opened(self, flags: int, *, keep: bool = False) -> Iterator[int]:
        """Yields the file descriptor. `keep`: keeps it open afterwards, if the limit allows one more."""
        if self._fd >= 0:
            yield self._fd
            return
        fd = os.open(self.path, flags | os.O_CLOEXEC, 0o600)
        if keep and _kept_open.acquire(blocking=False):
            self._fd = fd
            yield fd
            return
        try:
            yield fd
        finally:
            os.close(fd)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yields the headers of all complete batches from `position` on, each with its own position."""
        start, data = position, b""
        while True:
            if position - start + HEADER_SIZE > len(data):
                start, data = position, b"".join(self.read(position, _CHUNK))
                if len(data) < HEADER_SIZE:
                    return
            header = read_header(data, position - start)
            if not is_whole(header, self.size - position):
                return
            yield position, header
            position += header.size

    def truncate_to(self, size: int) -> None:
        """Truncates the file, including what a failed write left at the end."""
        if self._fd >= 0:
            os.ftruncate(self._fd, size)
        elif self.path.exists():
            os.truncate(self.path, size)
        self.size = size

    def flush(self) -> None:
        """Flushes to disk, so the bytes survive a power loss."""
        if self._fd >= 0:
            os.fsync(self._fd)
        elif self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def rename(self, path: Path) -> None:
        """Closes and renames the file. An existing one at `path` is overwritten."""
        self.close()
        self.path.replace(path)
        self.path = path

    def close(self) -> None:
        """Ends the writes. Reads open the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _kept_open.release()

    def delete(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self.size = 0


SegmentRecords: TypeAlias = MemoryRecords | FileRecords


def _write_all(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Writes all buffers, in one call if the file system takes all of it."""
    left = [memoryview(buffer) for buffer in buffers]
    total = sum(map(len, left))
    missing = total
    while missing:
        done = os.pwritev(fd, left, position + total - missing)
        missing -= done
        while left and done >= len(left[0]):
            done -= len(left.pop(0))
        if left:
            left[0] = left[0][done:]
    return total


def records_at(records: SegmentRecords, position: int, header: BatchHeader) -> list[Record]:
    """Returns the records of a batch one by one, for rare uses."""
    data = b"".join(records.read(position, header.size))
    return [record for batch in decode_batches(data) for record in batch.records()]


def marker_at(records: SegmentRecords, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Returns the marker of a control batch; None if compaction has emptied it or if it is of another kind."""
    for record in records_at(records, position, header)[:1]:
        return parse_marker(header.producer_id, header.producer_epoch, record.key, record.value)
    return None
