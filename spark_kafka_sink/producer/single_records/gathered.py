"""Rows of single records, column by column, and the columns that become of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from spark_kafka_sink.records.sizes import MAX_RECORD_OVERHEAD

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Gathered:
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

    def choose(self, partitions: NDArray[np.int32]) -> None:
        """Rows that find no memory keep the partition they were given: with another one at the next try they could come to stand
        behind later ones of this try. (Java's partition a record once, and wait.)"""
        self.chosen = partitions

    def place(self, partition: int | None, headers: Headers) -> None:
        """Of the row that comes next: what few rows have."""
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

    def pending(self) -> Gathered:
        """The rows that are neither in a batch nor failed."""
        return self._picked(row for row, future in enumerate(self.futures) if future.pending)

    def slice(self, start: int, stop: int) -> Gathered:
        return self._picked(range(start, stop))

    def _picked(self, rows: Iterable[int]) -> Gathered:
        picked = Gathered()
        picked.since_ms = self.since_ms
        picked._add(self, rows)
        return picked

    def extend(self, later: Gathered) -> None:
        """The rows of `later` behind these."""
        if not self:
            self.since_ms = later.since_ms
        self._add(later, range(len(later)))

    def _add(self, other: Gathered, rows: Iterable[int]) -> None:
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
        """Of each row, with its callback; also of those behind one whose callback was interrupted."""
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
