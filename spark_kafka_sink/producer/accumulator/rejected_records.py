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
from spark_kafka_sink.producer.bad_rows import BadRows
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
        records with the same reason share. size: bytes of memory, roughly.
    """

    topic: str
    partition: int
    fields: pa.Array
    timestamps: NDArray[np.int64]
    errors: Sequence[KafkaSinkError]
    size: int

    def bad_rows(self) -> list[BadRows]:
        """Returns the records as columns, with one element for each run of records that have the same reason."""
        found, start = list[BadRows](), 0
        for _, same in groupby(self.errors, id):
            error, *others = same
            stop = start + 1 + len(others)
            columns = _columns(self.fields[start:stop].to_pylist(), self.timestamps[start:stop])
            found.append(BadRows(self.topic, columns, error, None, self.partition))
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
    return RejectedRecords(batch.queue.topic, batch.queue.partition, fields, timestamps, shared, size)


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
