"""Records as columns: the Arrow arrays that a sink passes to the producer, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import (
    ByteLengths,
    array_of_bytes,
    array_of_numbers,
    byte_lengths,
    offsets_of,
    valid_mask,
    validity,
)
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
    timestamp: int64, ms since the epoch, or the unit of timestamp.unit; -1 for the time of append. None: -1 in all rows.
    partition: int32; -1 where the partitioner decides. None: it decides for all rows.
    fixed_headers: (key, value) pairs that every record has after its own headers. They are encoded once, not for each row.
    """

    num_records: int
    value: pa.Array | None = None
    key: pa.Array | None = None
    _: KW_ONLY
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
        return RecordColumns(
            rows, value, key, headers=headers, timestamp=timestamp, partition=partition, fixed_headers=self.fixed_headers
        )


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


# Headers of a column. Headers of all rows are `RecordColumns.fixed_headers`.


def header_counts(headers: pa.Array) -> NDArray[np.int64]:
    """Returns the number of headers per row; a null list has none."""
    offsets = offsets_of(headers)
    counts: NDArray[np.int64] = (offsets[1:] - offsets[:-1]).astype(np.int64, copy=False)
    valid = valid_mask(headers)
    return counts if valid is None else counts * valid


LIST_OF_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def with_headers(headers: pa.Array | None, added: FixedHeaders, rows: NDArray[np.bool_]) -> pa.Array:
    """Returns the headers of each row, with more of them at the end in some rows.

    Args:
        headers: as in RecordColumns; None: no row has any.
        added: the headers to add.
        rows: shape (num_records,); True where they are added.
    """
    if headers is None:
        headers = pa.nulls(len(rows), LIST_OF_HEADERS)
    kind, own = headers.type, headers.flatten()
    pair = kind.value_type
    new = pa.StructArray.from_arrays(
        [
            array_of_bytes([key.encode() for key, _ in added], pair.field("key").type),
            array_of_bytes([value for _, value in added], pair.field("value").type),
        ],
        fields=list(pair),
    )
    counts = header_counts(headers) + len(added) * rows
    offsets = np.zeros(len(rows) + 1, np.int64 if pa.types.is_large_list(kind) else np.int32)
    np.cumsum(counts, out=offsets[1:])
    # The place of each header among `own`, and after these `new`.
    places = np.full(int(offsets[-1]), -1, np.int64)
    last = offsets[1:][rows]
    for number in range(len(added)):
        places[last - len(added) + number] = len(own) + number
    return _merged(kind, own, new, offsets, places)


def with_header_column(headers: pa.Array | None, name: str, values: pa.Array) -> pa.Array:
    """Returns the headers of each row, with one more at the end in rows that have a value for it.

    Args:
        headers: as in RecordColumns; None: no row has any.
        name: the header's name.
        values: string or binary; null in rows without the header.
    """
    if headers is None:
        headers = pa.nulls(len(values), LIST_OF_HEADERS)
    kind, own = headers.type, headers.flatten()
    pair = kind.value_type
    rows, given = validity(values), values.drop_null()
    key = array_of_bytes([name.encode()], pair.field("key").type)[0]
    new = pa.StructArray.from_arrays([pa.repeat(key, len(given)), given.cast(pair.field("value").type)], fields=list(pair))
    offsets = np.zeros(len(rows) + 1, np.int64 if pa.types.is_large_list(kind) else np.int32)
    np.cumsum(header_counts(headers) + rows, out=offsets[1:])
    places = np.full(int(offsets[-1]), -1, np.int64)
    places[offsets[1:][rows] - 1] = len(own) + np.arange(len(given))
    return _merged(kind, own, new, offsets, places)


def _merged(kind: pa.DataType, own: pa.Array, new: pa.Array, offsets: NDArray[Any], places: NDArray[np.int64]) -> pa.Array:
    """Returns lists of headers. places: that of each header among `own` and then `new`; -1: the next one of `own`."""
    places[places < 0] = np.arange(len(own))
    items = pa.concat_arrays([own, new]).take(array_of_numbers(places))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[items])


def without_headers(headers: pa.Array, names: Sequence[str]) -> pa.Array:
    """Returns the headers of each row without those of some names.

    Args:
        headers: as in RecordColumns.
        names: the names to remove.
    """
    kind, own = headers.type, headers.flatten()
    removed = pc.is_in(own.field("key"), array_of_bytes([name.encode() for name in names], kind.value_type.field("key").type))
    if not pc.any(removed).as_py():
        return headers
    kept = ~removed.to_numpy(zero_copy_only=False)
    ends = np.cumsum(header_counts(headers), dtype=np.int64)
    offsets = np.zeros(len(headers) + 1, np.int64 if pa.types.is_large_list(kind) else np.int32)
    offsets[1:] = np.concatenate(([0], np.cumsum(kept)))[ends]
    items = own.filter(pc.invert(removed))
    return pa.Array.from_buffers(kind, len(headers), [None, pa.py_buffer(offsets)], children=[items])
