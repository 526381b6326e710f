"""A segment's bytes in a file: Kafka's FileRecords."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.segment_records import headers_by_reading
from spark_kafka_sink.records.compression import Buffer

# One index interval, and room for the header of a batch that begins at its end.
_CHUNK = 8 * 1024


class FileRecords:
    """Reads copy (pread), so what was read stays whatever becomes of the file.

    Only the segment that is written to keeps its file open, from the first append on: a broker of some thousand segments would
    pass the usual limit of 1,024 open files otherwise. Opening costs a read 5 us.
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
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        try:
            written = _write_all(self._fd, buffers)
        except OSError:
            self.truncate_to(self._size)
            raise
        self._size += written

    def read(self, position: int, size: int) -> list[Buffer]:
        size = min(size, self._size - position)
        if size <= 0:
            return []
        if self._fd >= 0:
            return [os.pread(self._fd, size, position)]
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return [os.pread(fd, size, position)]
        finally:
            os.close(fd)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return headers_by_reading(self, position, _CHUNK)

    def truncate_to(self, size: int) -> None:
        """Also what a failed write left behind the end."""
        if self._fd >= 0:
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
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

    def delete(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self._size = 0


def _write_all(fd: int, buffers: Sequence[Buffer]) -> int:
    """One call, as long as the file system takes all of it."""
    left = [memoryview(buffer) for buffer in buffers]
    total = sum(map(len, left))
    missing = total
    while missing:
        done = os.writev(fd, left)
        missing -= done
        while left and done >= len(left[0]):
            done -= len(left.pop(0))
        if left:
            left[0] = left[0][done:]
    return total
