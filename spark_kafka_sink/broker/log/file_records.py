"""A segment's bytes in a file: Kafka's FileRecords."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.segment_records import headers_by_reading
from spark_kafka_sink.records.compression import Buffer

# One index interval, and room for the header of a batch that begins at its end.
_CHUNK = 8 * 1024


def _half_of_the_limit() -> int:
    """The other half is for connections and for whatever else this process has open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 10_000 if soft == resource.RLIM_INFINITY else soft // 2


_kept_open = threading.Semaphore(_half_of_the_limit())
"""Of all logs in this process, for that is what the system counts."""


class FileRecords:
    """Reads copy (pread), so what was read stays whatever becomes of the file.

    Only the segment that is written to keeps its file open, from the first append on, and only as long as there are not too
    many of those (`_kept_open`): a broker of some thousand segments or partitions would pass the usual limit of 1,024 open files
    otherwise, and could not even accept a connection. Opening costs a read 5 us.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._size = path.stat().st_size if path.exists() else 0

    @classmethod
    def created(cls, path: Path) -> FileRecords:
        """An empty file; what was there is gone."""
        with path.open("wb"):
            return cls(path)

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> None:
        with self._opened(os.O_RDWR | os.O_CREAT, keep=True) as fd:
            try:
                written = _write_all(fd, buffers, self._size)
            except OSError:
                self.truncate_to(self._size)
                raise
        self._size += written

    def read(self, position: int, size: int) -> list[Buffer]:
        size = min(size, self._size - position)
        if size <= 0:
            return []
        with self._opened(os.O_RDONLY) as fd:
            return [os.pread(fd, size, position)]

    @contextmanager
    def _opened(self, flags: int, *, keep: bool = False) -> Iterator[int]:
        """The file that is open, or one for this time; `keep`: it stays open, where there is room for one more."""
        if self._fd >= 0:
            yield self._fd
            return
        fd = os.open(self.path, flags | os.O_CLOEXEC, 0o644)
        if keep and _kept_open.acquire(blocking=False):
            self._fd = fd
            yield fd
            return
        try:
            yield fd
        finally:
            os.close(fd)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return headers_by_reading(self, position, _CHUNK)

    def truncate_to(self, size: int) -> None:
        """Also what a failed write left behind the end."""
        if self._fd >= 0:
            os.ftruncate(self._fd, size)
        elif self.path.exists():
            os.truncate(self.path, size)
        self._size = size

    def flush(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
        elif self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def rename(self, path: Path) -> None:
        """Closed first; what was at `path` is gone."""
        self.close()
        self.path.replace(path)
        self.path = path

    def set_inactive(self) -> None:
        self.close()

    def close(self) -> None:
        """The file is opened again when it is needed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _kept_open.release()

    def delete(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self._size = 0


def _write_all(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """One call, as long as the file system takes all of it."""
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
