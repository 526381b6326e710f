"""Single records of one topic, put together until there are enough of them to be worth columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, TopicWaiter
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from spark_kafka_sink.records.sizes import MAX_RECORD_OVERHEAD

if TYPE_CHECKING:
    from spark_kafka_sink.client.cluster import Cluster

# Rows that make an append worth its fixed cost of some 0.5 ms.
MAX_ROWS = 2_000
MAX_BYTES = 512 * 1024
# Fewer where many topics have records. A row takes some 300 bytes beside its own.
ALL_ROWS = 100_000
MIN_ROWS = 100
MIN_BYTES = 16 * 1024
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class BufferLimits:
    """How many rows or bytes of a topic are appended at once. One for all of a producer's topics: what is buffered is not counted
    in buffer.memory, and shall not be more than that again. Written under the lock of RecordBuffer."""

    __slots__ = ("_memory", "rows", "size")

    def __init__(self, buffer_memory: int) -> None:
        self._memory = buffer_memory
        self.share(1)

    def share(self, topics: int) -> None:
        self.rows = max(MIN_ROWS, min(MAX_ROWS, ALL_ROWS // topics))
        self.size = max(MIN_BYTES, min(MAX_BYTES, self._memory // topics))


class TopicBuffer:
    """Threads: any may add. `lock` guards the attributes below `draining`. Whoever takes rows out holds `draining` until they are
    in batches, which keeps their order, and takes `lock` only after it."""

    def __init__(self, waiter: TopicWaiter, limits: BufferLimits) -> None:
        self.waiter = waiter
        self.lock = Lock()
        self.draining = Lock()
        self.rows = BufferedRows()
        self.taken: BufferedRows | None = None  # by who holds `draining`; what an interrupt left there is taken again
        self.closed_by: KafkaSinkError | None = None  # no more rows are added, and why
        self.ended_by: KafkaSinkError | None = None  # no more batches are made, and why
        self.known_in: Cluster | None = None  # the metadata in which the topic was last found; any thread may set it
        self._limits = limits

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
        future: RecordFuture,
        size: int,
        callback: bool,
    ) -> tuple[bool, bool]:
        """One more row, of `size` bytes, about. Whether it is the first that waits here, and whether there are enough now."""
        with self.lock:
            if self.closed_by is not None:
                raise self.closed_by.with_traceback(None)
            rows = self.rows
            futures = rows.futures
            first = not futures
            if first:
                rows.since_ms = monotonic_ms()
            if callback:
                rows.callbacks = True
            try:
                if partition is not None or headers or rows.partitions or rows.headers:
                    rows.place(partition, headers)
                rows.values.append(value)
                rows.keys.append(key)
                rows.timestamps.append(timestamp)
                futures.append(future)
            except BaseException:  # an interrupt must not leave half of a row, which would shift all that come after it
                rows.cut(len(futures))
                raise
            rows.size = total = rows.size + size
            return first, len(futures) >= self._limits.rows or total >= self._limits.size

    def is_full(self) -> bool:
        rows = self.rows
        return len(rows.futures) >= self._limits.rows or rows.size >= self._limits.size

    def is_idle(self) -> bool:
        """Whether no row is here or on its way from here into a batch."""
        with self.lock:  # else `put_back` between two looks: the rows would be seen in neither place
            return not self.rows.futures and self.taken is None and not self.draining.locked()

    def unsent(self) -> int:
        """The number of rows that are in no batch."""
        with self.lock:
            return len(self.rows) + (0 if self.taken is None else len(self.taken.pending()))

    def take(self) -> BufferedRows:
        """All that was buffered. `draining` is held; `put_back` or `settled` comes next."""
        with self.lock:
            if self.taken is not None:
                left = self.taken.pending()
                left.extend(self.rows)
                self.rows = left
            self.taken, self.rows = self.rows, BufferedRows()
            return self.taken

    def settled(self) -> None:
        """Forgets what was taken: it is in batches, or failed. `draining` is held."""
        self.taken = None

    def put_back(self, rows: BufferedRows) -> KafkaSinkError | None:
        """Puts rows in front of what came meanwhile; returns why, if nobody will ever take them again. `draining` is held."""
        with self.lock:
            if self.ended_by is None:
                rows.extend(self.rows)
                self.rows, self.taken = rows, None
            return self.ended_by

    def close(self, error: KafkaSinkError) -> None:
        """Take no more rows."""
        with self.lock:
            self.closed_by = self.closed_by or error

    def end(self, error: KafkaSinkError) -> BufferedRows:
        """Nobody makes batches any more. Returned are the rows that nobody has taken."""
        with self.lock:
            self.closed_by = self.closed_by or error
            self.ended_by = error
            rest, self.rows = self.rows, BufferedRows()
            return rest


class BufferedRows:
    """Rows in the order they were sent, column by column. since_ms: monotonic, when the first of them came. size: bytes, about.

    partitions, headers: empty where no row has any; shorter than the others before a row that has is placed. A row is five
    entries in lists: as an object of its own it took 0.3 us more.
    """

    __slots__ = ("callbacks", "chosen", "futures", "headers", "keys", "partitions", "since_ms", "size", "timestamps", "values")

    def __init__(self) -> None:
        self.since_ms = 0
        self.size = 0
        self.callbacks = False  # some future has one
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.futures: list[RecordFuture] = []
        self.partitions: list[int] = []
        self.headers: list[Headers] = []
        self.chosen: NDArray[np.int32] | None = None  # by the partitioner, for each row

    def __len__(self) -> int:
        return len(self.futures)

    def columns(self) -> RecordColumns:
        return RecordColumns(
            num_records=len(self),
            value=array_of_bytes(self.values, pa.large_binary()),
            key=None if self.keys.count(None) == len(self) else array_of_bytes(self.keys, pa.large_binary()),
            headers=_header_column(self.headers) if self.headers else None,
            timestamp=np.fromiter(self.timestamps, np.int64, len(self)),
            partition=np.array(self.partitions, np.int32) if self.partitions else None,
        )

    def keep_partitions(self, partitions: NDArray[np.int32]) -> None:
        """Rows that find no memory keep the partition they were given: with another one at the next try they could come to stand
        behind later ones of this try. (Java's partition a record once, and wait.)"""
        self.chosen = partitions

    def place(self, partition: int | None, headers: Headers) -> None:
        """Keeps what few rows have, of the row that comes next."""
        if partition is not None or self.partitions:
            self.partitions += [NO_PARTITION] * (len(self) - len(self.partitions))
            self.partitions.append(NO_PARTITION if partition is None else partition)
        if headers or self.headers:
            self.headers += [()] * (len(self) - len(self.headers))
            self.headers.append(headers)

    def cut(self, count: int) -> None:
        """Keep the first `count` rows; the columns may be of different lengths behind them."""
        for column in (self.values, self.keys, self.timestamps, self.futures, self.partitions, self.headers):
            del column[count:]

    def pending(self) -> BufferedRows:
        """The rows that are neither in a batch nor failed."""
        return self._picked(row for row, future in enumerate(self.futures) if future.pending)

    def slice(self, start: int, stop: int) -> BufferedRows:
        return self._picked(range(start, stop))

    def _picked(self, rows: Iterable[int]) -> BufferedRows:
        picked = BufferedRows()
        picked.since_ms = self.since_ms
        picked._add(self, rows)
        return picked

    def extend(self, later: BufferedRows) -> None:
        """The rows of `later` behind these."""
        if not self:
            self.since_ms = later.since_ms
        self._add(later, range(len(later)))

    def _add(self, other: BufferedRows, rows: Iterable[int]) -> None:
        self.callbacks |= other.callbacks
        partitions = other.partitions if other.chosen is None else other.chosen.tolist()
        for row in rows:
            value, key = other.values[row], other.keys[row]
            self.place(partitions[row] if partitions else None, other.headers[row] if other.headers else ())
            self.values.append(value)
            self.keys.append(key)
            self.timestamps.append(other.timestamps[row])
            self.futures.append(other.futures[row])
            self.size += len(value or b"") + len(key or b"") + MAX_RECORD_OVERHEAD

    def fail(self, error: KafkaSinkError) -> None:
        """Fails each row, with its callback; also those behind one whose callback was interrupted."""
        left = iter(self.futures)
        try:
            for future in left:
                future.fail(error)
        finally:
            for future in left:
                future.fail(error)


def _header_column(headers: Sequence[Headers]) -> pa.Array:
    """Each row's (key, value) pairs as a list column, made of three flat arrays."""
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum([len(own) for own in headers], out=offsets[1:])
    pairs = [pair for own in headers for pair in own]
    keys = array_of_bytes([key.encode() for key, _ in pairs], pa.string())
    values = array_of_bytes([value for _, value in pairs])
    return pa.ListArray.from_arrays(
        array_of_numbers(offsets), pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    )
