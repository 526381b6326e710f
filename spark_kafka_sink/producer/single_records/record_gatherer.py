"""Single records of one topic, put together until there are enough of them to be worth columns."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns

if TYPE_CHECKING:
    from spark_kafka_sink.client.cluster import Cluster
    from spark_kafka_sink.producer.single_records.record_scope import RecordScope

# Rows that make an append worth its fixed cost of some 0.5 ms.
MAX_ROWS = 2_000
# They are not counted in buffer.memory, so they are kept few.
MAX_BYTES = 512 * 1024
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Gathered:
    """Rows in the order they were sent, column by column. since_ms: monotonic, when the first of them came. size: bytes, about.

    partitions, headers: empty where no row has any. A row is five entries in lists: as an object of its own it took 0.3 us more.
    """

    __slots__ = ("callbacks", "futures", "headers", "keys", "partitions", "since_ms", "size", "timestamps", "values")

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

    def __len__(self) -> int:
        return len(self.futures)

    def columns(self) -> RecordColumns:
        return RecordColumns(
            num_records=len(self),
            value=pa.array(self.values, pa.large_binary()),  # half the time of binary
            key=None if self.keys.count(None) == len(self) else pa.array(self.keys, pa.large_binary()),
            headers=_header_column(self.headers) if self.headers else None,
            timestamp=np.fromiter(self.timestamps, np.int64, len(self)),
            partition=np.array(self.partitions, np.int32) if self.partitions else None,
        )

    def place(self, partition: int | None, headers: Headers) -> None:
        """Of the row that comes next: what few rows have."""
        if partition is not None or self.partitions:
            self.partitions += [NO_PARTITION] * (len(self) - len(self.partitions))
            self.partitions.append(NO_PARTITION if partition is None else partition)
        if headers or self.headers:
            self.headers += [()] * (len(self) - len(self.headers))
            self.headers.append(headers)

    def unassigned(self) -> Gathered:
        """What is in no batch yet."""
        return self._picked([row for row, future in enumerate(self.futures) if not future.assigned])

    def slice(self, start: int, stop: int) -> Gathered:
        return self._picked(range(start, stop))

    def _picked(self, rows: Sequence[int]) -> Gathered:
        picked = Gathered()
        picked.since_ms, picked.size, picked.callbacks = self.since_ms, self.size, self.callbacks
        for row in rows:
            picked.place(self.partitions[row] if self.partitions else None, self.headers[row] if self.headers else ())
            picked.values.append(self.values[row])
            picked.keys.append(self.keys[row])
            picked.timestamps.append(self.timestamps[row])
            picked.futures.append(self.futures[row])
        return picked

    def extend(self, later: Gathered) -> None:
        """The rows of `later` behind these."""
        for row in range(len(later)):
            self.place(later.partitions[row] if later.partitions else None, later.headers[row] if later.headers else ())
            self.values.append(later.values[row])
            self.keys.append(later.keys[row])
            self.timestamps.append(later.timestamps[row])
            self.futures.append(later.futures[row])
        self.size += later.size
        self.callbacks |= later.callbacks

    def fail(self, error: KafkaSinkError) -> None:
        for future in self.futures:
            future.fail(error)


class RecordGatherer:
    """Threads: any may add. `lock` guards `gathered` and `closed_by`. Whoever takes rows out holds `draining` until they are in
    batches, which keeps their order, and takes `lock` only after it."""

    def __init__(self, scope: RecordScope) -> None:
        self.scope = scope
        self.lock = Lock()
        self.draining = Lock()
        self.gathered = Gathered()
        self.closed_by: KafkaSinkError | None = None  # no more rows, and why
        self.known_in: Cluster | None = None  # the metadata in which the topic was last found; any thread may set it

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
                raise self.closed_by
            gathered = self.gathered
            if partition is not None or headers or gathered.partitions or gathered.headers:
                gathered.place(partition, headers)
            gathered.values.append(value)
            gathered.keys.append(key)
            gathered.timestamps.append(timestamp)
            gathered.futures.append(future)
            gathered.size = total = gathered.size + size
            if callback:
                gathered.callbacks = True
            count = len(gathered.futures)
            if count == 1:
                gathered.since_ms = monotonic_ms()
            return count == 1, count >= MAX_ROWS or total >= MAX_BYTES

    def take(self) -> Gathered:
        """All that was gathered. `draining` is held."""
        with self.lock:
            gathered, self.gathered = self.gathered, Gathered()
            return gathered

    def put_back(self, gathered: Gathered) -> None:
        """In front of what came meanwhile. `draining` is held."""
        with self.lock:
            gathered.extend(self.gathered)
            self.gathered = gathered

    def close(self, error: KafkaSinkError) -> None:
        """Take no more rows."""
        with self.lock:
            self.closed_by = self.closed_by or error


def _header_column(headers: Sequence[Headers]) -> pa.Array:
    """Each row's (key, value) pairs as a list column, made of three flat arrays."""
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum([len(own) for own in headers], out=offsets[1:])
    pairs = [pair for own in headers for pair in own]
    keys = pa.array([key for key, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    )
