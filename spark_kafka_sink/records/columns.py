"""Records as columns: the Arrow arrays that a sink passes to the producer, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import ByteLengths, array_of_numbers, byte_lengths
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP

__all__ = ["NO_PARTITION", "NO_TIMESTAMP", "FixedHeaders", "RecordColumns", "concatenated", "copied"]

NO_PARTITION = -1  # the partitioner decides

FixedHeaders = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of one topic, as columns of the same length.

    num_records: the number of records.
    key, value: binary, large_binary, string or large_string arrays, sliced or not; any type that the producer's serializers
    accept, before these run. None: all null.
    headers: list (or large_list) of struct<key: string, value: binary> (or large_*). A null list means no headers. None: no row
    has any. The caller has checked that no element and no header key is null.
    timestamp: int64, ms since the epoch; NO_TIMESTAMP for the time of append. None: NO_TIMESTAMP in all rows.
    partition: int32; NO_PARTITION where the partitioner decides. None: it decides for all rows.
    fixed_headers: (key, value) pairs that every record has after its own headers. They are encoded once, not for each row.
    """

    num_records: int
    value: pa.Array | None = None
    key: pa.Array | None = None
    headers: pa.Array | None = None
    timestamp: NDArray[np.int64] | None = None
    partition: NDArray[np.int32] | None = None
    fixed_headers: FixedHeaders = ()
    _lengths: dict[str, ByteLengths] = field(default_factory=dict, init=False, repr=False, compare=False)

    def lengths(self, name: str) -> ByteLengths | None:
        """Returns the sizes of the rows of `key` or `value`, or None without the column. They are cached for later uses."""
        known = self._lengths.get(name)
        if known is None:
            column = getattr(self, name)
            if column is None:
                return None
            known = self._lengths[name] = byte_lengths(column)
        return known

    def slice(self, offset: int, length: int) -> RecordColumns:
        """Returns rows `offset` to `offset + length`, without copying."""
        end = min(offset + length, self.num_records)
        if offset == 0 and end == self.num_records:
            return self
        rows = end - offset

        def cut(column: Any) -> Any:
            return column.slice(offset, rows) if isinstance(column, pa.Array) else None if column is None else column[offset:end]

        return self._with(rows, map(cut, self._columns()))

    def filter(self, wanted: NDArray[np.bool_]) -> RecordColumns:
        """Returns a copy of the rows where `wanted`, of shape (num_records,), is True."""
        mask = array_of_numbers(wanted)

        def some(column: Any) -> Any:
            return column.filter(mask) if isinstance(column, pa.Array) else None if column is None else column[wanted]

        return self._with(int(np.count_nonzero(wanted)), map(some, self._columns()))

    @property
    def nbytes(self) -> int:
        """Returns the approximate size of the rows in memory, in bytes."""
        return sum(column.nbytes for column in self._columns() if column is not None)

    def is_like(self, other: RecordColumns) -> bool:
        """Returns whether both have the same columns of the same types, so that `concatenated` can join them."""
        return _types(self) == _types(other) and self.fixed_headers == other.fixed_headers

    def _columns(self) -> tuple[Any, ...]:
        """Returns the columns with a row for each record, in the order of the fields."""
        return self.value, self.key, self.headers, self.timestamp, self.partition

    def _with(self, rows: int, columns: Iterable[Any]) -> RecordColumns:
        """Returns other rows with the same fixed headers. columns: in the order of `_columns`."""
        value, key, headers, timestamp, partition = columns
        return RecordColumns(rows, value, key, headers, timestamp, partition, self.fixed_headers)


def concatenated(parts: Sequence[RecordColumns]) -> RecordColumns:
    """Concatenates parts, which must be alike (`is_like`). It copies the rows unless there is only one part."""
    if len(parts) == 1:
        return parts[0]
    columns = map(_concatenated, zip(*(part._columns() for part in parts), strict=True))
    return parts[0]._with(sum(part.num_records for part in parts), columns)


def copied(columns: RecordColumns) -> RecordColumns:
    """Returns a copy of the rows in its own memory, which keeps no other buffer alive."""
    return concatenated([columns, columns.slice(0, 0)])


def _concatenated(columns: Sequence[Any]) -> Any:
    if columns[0] is None:
        return None
    return pa.concat_arrays(columns) if isinstance(columns[0], pa.Array) else np.concatenate(columns)


def _types(columns: RecordColumns) -> list[object]:
    return [
        None if column is None else column.type if isinstance(column, pa.Array) else column.dtype for column in columns._columns()
    ]
