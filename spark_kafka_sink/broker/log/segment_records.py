"""Where a segment's bytes lie: batches end to end, in memory. Files are in file_records.py; both behave alike."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

from spark_kafka_sink.broker.log.batch import BatchHeader, is_whole, read_header
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Buffer

_MANY_BATCHES = 64


class SegmentRecords(Protocol):
    """The bytes of one segment. Guarded by the log's lock. Errors of the file system are OSError."""

    @property
    def size(self) -> int: ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """One batch, whole or not at all: after an OSError the size is what it was."""

    def read(self, position: int, size: int) -> list[Buffer]:
        """These bytes, fewer at the end. Nothing that happens later changes them."""

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Of all whole batches from the one at `position` on, each with its own position."""

    def truncate_to(self, size: int) -> None: ...
    def flush(self) -> None:
        """All of it outlives the machine's power."""

    def set_inactive(self) -> None:
        """Nothing will be appended any more."""

    def close(self) -> None: ...
    def delete(self) -> None: ...


class MemoryRecords:
    """Each batch copied once, and handed out as it is."""

    def __init__(self) -> None:
        self._batches: list[bytes] = []
        self._positions: list[int] = []
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> None:
        batch = b"".join(buffers)
        self._batches.append(batch)
        self._positions.append(self._size)
        self._size += len(batch)

    def read(self, position: int, size: int) -> list[Buffer]:
        found: list[Buffer] = []
        end = min(position + size, self._size)
        at = max(bisect_right(self._positions, position) - 1, 0)
        while position < end:
            start, batch = self._positions[at], self._batches[at]
            last = min(end - start, len(batch))
            whole = position == start and last == len(batch)
            found.append(batch if whole else memoryview(batch)[position - start : last])
            position = start + last
            at += 1
        # A socket takes at most 1,024 buffers in one call, and every one costs it some time.
        return found if len(found) <= _MANY_BATCHES else [b"".join(found)]

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        at = max(bisect_right(self._positions, position) - 1, 0)
        while at < len(self._batches):
            yield self._positions[at], read_header(self._batches[at])
            at += 1

    def truncate_to(self, size: int) -> None:
        kept = bisect_right(self._positions, size - 1)
        del self._batches[kept:], self._positions[kept:]
        self._size = size

    def flush(self) -> None:
        """There is nothing that could outlive the process."""

    def set_inactive(self) -> None:
        """Memory is as it was."""

    def close(self) -> None:
        """Memory needs no closing."""

    def delete(self) -> None:
        self.truncate_to(0)


def headers_by_reading(records: SegmentRecords, position: int, chunk: int) -> Iterator[tuple[int, BatchHeader]]:
    """`headers` for records that can only be read: `chunk` bytes at a time, and each new one where a header is needed."""
    start, data = position, b""
    while True:
        if position - start + HEADER_SIZE > len(data):
            start, data = position, b"".join(records.read(position, chunk))
            if len(data) < HEADER_SIZE:
                return
        header = read_header(data, position - start)
        if not is_whole(header, records.size - position):
            return
        yield position, header
        position += header.size
