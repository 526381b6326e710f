"""Records that a broker rejected, kept as they were sent until their task takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.accumulator.batch_splitting import records_of
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.accumulator.row_origins import RowRun, moved_rows, row_numbers_of
from spark_kafka_sink.producer.base.bad_rows import BadRows
from spark_kafka_sink.records.added_headers import LIST_OF_HEADERS
from spark_kafka_sink.records.arrow_arrays import array_of_bytes
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.record_reader import Headers, read_fields

# An error with its text and facts, in bytes.
ERROR_SIZE: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class RejectedRecords:
    """Rejected records of one batch. The sender's thread makes them, the task's decodes them.

    fields: the bytes of each record from its key's length on. timestamps: ms since the epoch. errors: one for each record, which
        records with the same reason share. size: bytes of memory, roughly. rows: which rows of appends the records are, if known.
    """

    topic: str
    partition: int
    fields: pa.Array
    timestamps: NDArray[np.int64]
    errors: Sequence[KafkaSinkError]
    size: int
    rows: Sequence[RowRun] | None = None

    def bad_rows(self) -> list[BadRows]:
        """Returns the records as columns, with one element for each run of records that have the same reason.

        Records with known rows are in other elements than those without.
        """
        found, start = list[BadRows](), 0
        numbers = row_numbers_of(self.rows, len(self.errors))
        for _, same in groupby(zip(self.errors, numbers, strict=True), lambda each: (id(each[0]), each[1] is None)):
            (error, number), *others = same
            stop = start + 1 + len(others)
            columns = _columns(self.fields[start:stop].to_pylist(), self.timestamps[start:stop])
            rows = None if number is None else np.array(numbers[start:stop], np.intp)
            found.append(BadRows(self.topic, columns, error, rows, self.partition))
            start = stop
        return found


def rejected_records(batch: SealedBatch, errors: Mapping[int, KafkaSinkError]) -> RejectedRecords:
    """Returns a copy of the batch's records that have errors, by ascending index."""
    records = records_of(batch)
    rows = np.array(list(errors), np.intp)
    fields = records.fields.take(pa.array(2 * rows + 1))
    timestamps = records.timestamp_deltas[rows] + batch.first_timestamp
    by_text: dict[str, KafkaSinkError] = {}
    shared = [by_text.setdefault(error.message, error) for error in errors.values()]
    size = fields.nbytes + timestamps.nbytes + ERROR_SIZE * len(by_text)
    numbered = moved_rows(batch.opened.rows, rows)
    return RejectedRecords(batch.queue.topic, batch.queue.partition, fields, timestamps, shared, size, numbered)


def _columns(fields: Sequence[bytes], timestamps: NDArray[np.int64]) -> RecordColumns:
    keys, values, headers = zip(*map(read_fields, fields), strict=True)
    return RecordColumns(
        len(fields),
        value=array_of_bytes(values),
        key=array_of_bytes(keys),
        headers=_headers(headers) if any(headers) else None,
        timestamp=timestamps,
    )


def _headers(headers: Sequence[Headers]) -> pa.Array:
    return pa.array([[{"key": key, "value": value} for key, value in pairs] for pairs in headers], LIST_OF_HEADERS)
