"""Single records of one topic, collected until there are enough for columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, TopicWaiter
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from spark_kafka_sink.records.encoder import MAX_RECORD_OVERHEAD

# Number of rows that justify an append's fixed cost of some 0.5 ms.
MAX_ROWS = 2_000
MAX_BYTES = 512 * 1024
# Fewer if many topics have records. A row takes some 300 bytes besides its data.
ALL_ROWS = 100_000
MIN_ROWS = 100
MIN_BYTES = 16 * 1024
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class BufferLimits:
    """Number of rows or bytes of a topic that are appended at once.

    All topics of a producer share it: buffered rows are not counted in buffer.memory, and must not exceed that again in total.
    Written under RecordBuffer's lock.
    """

    __slots__ = ("_memory", "rows", "size")

    def __init__(self, buffer_memory: int) -> None:
        self._memory = buffer_memory
        self.share(1)

    def share(self, topics: int) -> None:
        self.rows = max(MIN_ROWS, min(MAX_ROWS, ALL_ROWS // topics))
        self.size = max(MIN_BYTES, min(MAX_BYTES, self._memory // topics))


class TopicBuffer:
    """The rows of one topic. Any thread may add.

    `lock` guards the attributes below `draining`. A thread that takes rows out holds `draining` until they are in batches, which
    keeps their order, and takes `lock` only after it.
    """

    def __init__(self, waiter: TopicWaiter, limits: BufferLimits) -> None:
        self.waiter = waiter
        self.lock = Lock()
        self.draining = Lock()
        self.rows = BufferedRows()
        self.taken: BufferedRows | None = None  # by the holder of `draining`
        self.closed_by: KafkaSinkError | None = None  # why no more rows are accepted
        self.ended_by: KafkaSinkError | None = None  # why no more batches are made
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
        """Adds a row of about `size` bytes. Returns whether it is the first one and whether the buffer is full."""
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
            except BaseException:  # until the producer has failed, half a row would shift all later rows
                rows.cut(len(futures))
                raise
            rows.size = total = rows.size + size
            return first, len(futures) >= self._limits.rows or total >= self._limits.size

    def is_full(self) -> bool:
        rows = self.rows
        return len(rows.futures) >= self._limits.rows or rows.size >= self._limits.size

    def is_idle(self) -> bool:
        """Returns whether no row is here or on its way into a batch."""
        with self.lock:  # otherwise `put_back` could move rows between the two checks
            return not self.rows.futures and self.taken is None and not self.draining.locked()

    def unsent(self) -> int:
        with self.lock:
            return len(self.rows) + (0 if self.taken is None else len(self.taken.pending()))

    def take(self) -> BufferedRows:
        """Takes all buffered rows. Requires `draining`; `put_back` or `settled` must follow."""
        with self.lock:
            if self.taken is not None:  # by a thread that was interrupted
                left = self.taken.pending()
                left.extend(self.rows)
                self.rows = left
            self.taken, self.rows = self.rows, BufferedRows()
            return self.taken

    def settled(self) -> None:
        """Forgets the taken rows, which are in batches or have failed. Requires `draining`."""
        self.taken = None

    def put_back(self, rows: BufferedRows) -> KafkaSinkError | None:
        """Puts rows in front of newer ones. Returns the error if no more batches are made. Requires `draining`."""
        with self.lock:
            if self.ended_by is None:
                rows.extend(self.rows)
                self.rows, self.taken = rows, None
            return self.ended_by

    def close(self, error: KafkaSinkError) -> None:
        with self.lock:
            self.closed_by = self.closed_by or error

    def end(self, error: KafkaSinkError) -> list[RecordFuture]:
        """Ends the creation of batches. Returns the futures of all rows left, with those of a thread that was interrupted."""
        with self.lock:
            self.closed_by = self.closed_by or error
            self.ended_by = error
            taken = [] if self.taken is None else self.taken.futures
            rest, self.rows = self.rows, BufferedRows()
            return [future for future in (*taken, *rest.futures) if future.pending]


class BufferedRows:
    """Rows in sending order, column by column.

    since_ms: monotonic time of the first row. size: approximate bytes.

    partitions and headers are empty if no row has any, and shorter than the other columns until the next row that has one. A row
    is five list entries: an object per row took 0.3 us more.
    """

    __slots__ = ("callbacks", "chosen", "futures", "headers", "keys", "partitions", "since_ms", "size", "timestamps", "values")

    def __init__(self) -> None:
        self.since_ms = 0
        self.size = 0
        self.callbacks = False  # whether any future has a callback
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.futures: list[RecordFuture] = []
        self.partitions: list[int] = []
        self.headers: list[Headers] = []
        self.chosen: NDArray[np.int32] | None = None  # chosen by the partitioner for each row

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
        """Keeps the chosen partitions of rows that found no memory.

        With another partition at the next try they could end up behind later rows of this try. (Java partitions a record once,
        and waits.)
        """
        self.chosen = partitions

    def place(self, partition: int | None, headers: Headers) -> None:
        """Stores the partition and headers of the next row, which few rows have."""
        if partition is not None or self.partitions:
            self.partitions += [NO_PARTITION] * (len(self) - len(self.partitions))
            self.partitions.append(NO_PARTITION if partition is None else partition)
        if headers or self.headers:
            self.headers += [()] * (len(self) - len(self.headers))
            self.headers.append(headers)

    def cut(self, count: int) -> None:
        """Keeps the first `count` rows; the columns may have different lengths after that."""
        for column in (self.values, self.keys, self.timestamps, self.futures, self.partitions, self.headers):
            del column[count:]

    def pending(self) -> BufferedRows:
        """Returns the rows that are neither in a batch nor failed."""
        return self._picked(row for row, future in enumerate(self.futures) if future.pending)

    def slice(self, start: int, stop: int) -> BufferedRows:
        return self._picked(range(start, stop))

    def _picked(self, rows: Iterable[int]) -> BufferedRows:
        picked = BufferedRows()
        picked.since_ms = self.since_ms
        picked._add(self, rows)
        return picked

    def extend(self, later: BufferedRows) -> None:
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


def _header_column(headers: Sequence[Headers]) -> pa.Array:
    """Returns each row's (key, value) pairs as a list column, built from three flat arrays."""
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum([len(own) for own in headers], out=offsets[1:])
    pairs = [pair for own in headers for pair in own]
    keys = array_of_bytes([key.encode() for key, _ in pairs], pa.string())
    values = array_of_bytes([value for _, value in pairs])
    return pa.ListArray.from_arrays(
        array_of_numbers(offsets), pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    )
