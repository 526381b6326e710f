"""A checksum of a task's rows: equal rows in equal order give the same value, however they are split into Arrow batches.

It covers every row of the task, good or bad, as Spark passed it. Whether the producer or a broker refuses a row depends on things
that may change between two attempts, such as a limit of the topic. So the checksum does not cover which rows became dead letters,
nor the letters' texts. With dead letters each row is in one transaction in either case, as a record or as a letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from spark_kafka_sink.records.arrow_arrays import (
    array_of_bytes,
    byte_lengths,
    filled_numbers,
    holds_bytes,
    offsets_of,
    scalar_of_bytes,
    validity,
)
from spark_kafka_sink.records.columns import RecordColumns

_NULL = -1
_REFUSED = "refused rows"  # no topic has this name, because of the space


class RowChecksum:
    """CRC-32C of the rows' values, lengths and nulls, column by column and topic by topic.

    Each is a separate stream of bytes that continues from batch to batch. Rows of two topics may be interleaved differently, as
    in Kafka. A row of 100 bytes takes about 0.015 us.
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[str, ...], int] = {}
        self.rows = 0
        """The number of rows that were added."""

    def add(self, topic: str, columns: RecordColumns) -> None:
        self.rows += columns.num_records
        for name in ("key", "value", "headers"):
            column = getattr(columns, name)
            if column is None:
                self._lengths((topic, name), np.full(columns.num_records, _NULL, np.int32))
            else:
                self._column((topic, name), column)
        for name, numbers in (("timestamp", columns.timestamp), ("partition", columns.partition)):
            if numbers is not None:
                self._bytes((topic, name), np.ascontiguousarray(numbers))

    def add_refused(self, topics: Sequence[str | None], columns: RecordColumns) -> None:
        """Adds rows that the task's own checks refuse. These depend on the row alone, so an equal task refuses equal rows."""
        texts = [None if topic is None else topic.encode(errors="backslashreplace") for topic in topics]
        self._byte_column((_REFUSED, "topic"), array_of_bytes(texts))
        self.add(_REFUSED, columns)

    @property
    def value(self) -> int:
        """Returns the checksum of all added rows, as an unsigned 32-bit number."""
        return crc32c(repr(sorted(self._streams.items())).encode())

    def _column(self, path: tuple[str, ...], column: pa.Array) -> None:
        kind = column.type
        if holds_bytes(kind):
            self._byte_column(path, column)
        elif pa.types.is_struct(kind):
            self._lengths(path, _validity(column))
            for index in range(kind.num_fields):
                # The field's own nulls, and those of the struct.
                self._column((*path, str(index)), column.flatten()[index])
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
            self._list_column(path, column)
        else:
            self._fixed_column(path, column)

    def _byte_column(self, path: tuple[str, ...], column: pa.Array) -> None:
        lengths = byte_lengths(column)
        self._lengths(path, lengths.rows.astype(np.int32))
        if lengths.longest <= 0:
            return
        # A null may have bytes, which are not data.
        filled = column.fill_null(scalar_of_bytes(b"", column.type)) if column.null_count else column
        offsets = offsets_of(filled)
        data = filled.buffers()[2]
        self._bytes((*path, "data"), data[int(offsets[0]) : int(offsets[-1])])

    def _list_column(self, path: tuple[str, ...], column: pa.Array) -> None:
        if pa.types.is_map(column.type):
            entries = pa.field("entries", pa.struct([column.type.key_field, column.type.item_field]), nullable=False)
            column = column.view(pa.list_(entries))
        self._lengths(path, filled_numbers(pc.list_value_length(column).cast(pa.int32()), np.int32, _NULL))
        self._column((*path, "elements"), column.flatten())

    def _fixed_column(self, path: tuple[str, ...], column: pa.Array) -> None:
        """Adds numbers, dates, decimals and the like, as text if Arrow has no fixed-width bytes for them."""
        self._lengths(path, _validity(column))
        values = column.drop_null()
        if pa.types.is_null(values.type) or not len(values):
            return
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.uint8())
        width = values.type.byte_width
        self._bytes((*path, "data"), values.buffers()[1][values.offset * width : (values.offset + len(values)) * width])

    def _lengths(self, path: tuple[str, ...], lengths: Any) -> None:
        self._bytes((*path, "lengths"), lengths)

    def _bytes(self, path: tuple[str, ...], data: Any) -> None:
        if memoryview(data).nbytes:  # an empty stream is not counted, so a batch without rows changes nothing
            self._streams[path] = crc32c(data, self._streams.get(path, 0))


def _validity(column: pa.Array) -> Any:
    return validity(column).astype(np.int32) + _NULL
