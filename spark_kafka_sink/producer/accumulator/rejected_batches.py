"""Splits batches that a broker rejects (Java's ProducerBatch.split), or takes their rejected records out.

Rejected records can be given back with the numbers of their rows in the append. Only scopes that keep rejected records note
these, and only for appends whose caller numbers its rows. The notes are dropped with their batch. They take 2 bytes per row if
the partitions of an append are mixed, plus 200 bytes for each partition of an append.

CPU time of `Appender.append` with and without, on a busy machine (medians of alternating runs): 4,000 rows to 12 partitions 640
and 625 us, 40,000 to 12 equal within 1 %, 4,000 to 1,000 partitions 2.8 and 2.65 ms, 40,000 to 1,000 7.0 and 6.8 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import BrokerError, KafkaSinkError, UsageError
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool, SharedChunks
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.base.bad_rows import BadRows, RowNumbers
from spark_kafka_sink.producer.base.produce_reactions import ADVICE, Action
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.records.arrow_arrays import array_of_bytes
from spark_kafka_sink.records.columns import LIST_OF_HEADERS, RecordColumns
from spark_kafka_sink.records.compression import decompress
from spark_kafka_sink.records.encoder import WrittenRecords, encode_again, written_records
from spark_kafka_sink.records.record_reader import read_fields
from spark_kafka_sink.records.timestamps import in_both_units

# An error with its text and facts, in bytes.
ERROR_SIZE: Final = 1000
NO_REASON = "the broker gave no reason"

Rows = NDArray[np.intp]


# Which rows of an append the records of a batch are


class AppendedRows(NamedTuple):
    """Rows of one append, in the order in which they were encoded.

    numbers: returns the caller's numbers of rows, given by their positions in the columns of the append. Row j is at position
    first + order[j]; without an order at first + j.
    """

    numbers: RowNumbers
    first: int
    order: NDArray[np.unsignedinteger[Any]] | None

    @classmethod
    def of(cls, numbers: RowNumbers, first: int, order: NDArray[np.intp] | None) -> AppendedRows:
        # A copy of a quarter of the size: few appends encode more than 65,536 rows at once.
        return cls(numbers, first, None if order is None else order.astype(np.uint16 if len(order) <= 2**16 else np.uint32))


RowRun = tuple[int, int, int, AppendedRows]
"""Consecutive records of a batch: the index of the first, their number, and j of the first one in the rows of its append."""


def note_rows(
    batches: Iterable[OpenBatch], firsts: Sequence[int], counts: Sequence[int], starts: Sequence[int], rows: AppendedRows
) -> None:
    """Notes which rows were just added to each batch, in runs as in RowRun. An append may have 1,000 partitions, so zip makes the
    runs, which takes 0.1 us for each.
    """
    for batch, run in zip(batches, zip(firsts, counts, starts, repeat(rows), strict=False), strict=True):
        if batch.rows is None:
            batch.rows = [run]
        else:
            batch.rows.append(run)


def moved_rows(runs: Sequence[RowRun] | None, records: NDArray[np.intp]) -> list[RowRun] | None:
    """Returns the runs of some of a batch's records, as if these were a batch. They keep nothing of the others.

    records: ascending indexes in the batch.
    """
    if runs is None:
        return None
    moved = []
    for first, count, start, rows in runs:
        begin, end = np.searchsorted(records, (first, first + count)).tolist()
        if begin < end:
            places = records[begin:end] + (start - first)
            order = places.astype(np.uint32) if rows.order is None else rows.order[places]
            moved.append((begin, end - begin, 0, rows._replace(order=order)))
    return moved


def row_numbers_of(runs: Sequence[RowRun] | None, count: int) -> list[int | None]:
    """Returns the number of the row of each of `count` records; None where it is unknown. It calls the user's function."""
    found: list[int | None] = [None] * count
    for first, length, start, rows in runs or ():
        places = np.arange(start, start + length)
        numbers = np.asarray(rows.numbers(rows.first + (places if rows.order is None else rows.order[places].astype(np.intp))))
        if numbers.shape != (length,):
            raise UsageError(
                f"row_numbers returned an array of shape {numbers.shape} for {length} rows; return one number per row"
            )
        found[first : first + length] = numbers.tolist()
    return found


# Batches from records of a sealed batch


def split(batch: SealedBatch, limit: int, pool: BufferPool) -> list[SealedBatch]:
    """Splits a batch of more than one record into two or more batches, keeping the order.

    limit: maximum bytes of records per new batch, before compression, except for a single larger record; less than the batch has.
    Records count at their current size: after another first timestamp one may take a few bytes more.
    """
    records = records_of(batch)
    return _rebuilt(batch, records, runs(records.sizes, limit), pool)


def rebuild(batch: SealedBatch, parts: Sequence[Rows], pool: BufferPool) -> list[SealedBatch]:
    """Returns the rows of each part as a new batch, sealed but not numbered, as if it had never been sent.

    The parts are ascending row numbers from 0, at least one each. They keep the batch's queue, tally and age. The batch keeps its
    own memory: free it when the parts have replaced it.
    """
    return _rebuilt(batch, records_of(batch), parts, pool)


def runs(sizes: NDArray[np.int64], limit: int) -> list[Rows]:
    """Groups rows of these sizes into runs of at most `limit` bytes, except for a single larger row."""
    ends = np.cumsum(sizes)
    found, start, done = [], 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, done + limit, side="right")))
        found.append(np.arange(start, stop))
        start, done = stop, int(ends[stop - 1])
    return found


def records_of(batch: SealedBatch) -> WrittenRecords:
    """Returns the batch's records, split but not decoded."""
    return written_records(decompress(batch.codec, b"".join(batch.payload), batch.raw_size), batch.record_count)


def _rebuilt(batch: SealedBatch, records: WrittenRecords, parts: Sequence[Rows], pool: BufferPool) -> list[SealedBatch]:
    """Encodes all parts at once, as an append does. They share that block until they are compressed or done."""
    rows = np.concatenate(parts)
    counts = np.array([len(part) for part in parts])
    ends = np.cumsum(counts)
    starts = ends - counts
    timestamps = records.timestamp_deltas[rows] + batch.first_timestamp
    first_timestamps = timestamps[starts]
    offset_deltas = (np.arange(len(rows)) - np.repeat(starts, counts)).astype(np.int32)
    encoded = encode_again(records, rows, offset_deltas, timestamps - np.repeat(first_timestamps, counts))
    max_timestamps = np.maximum.reduceat(timestamps, starts)
    largest = np.maximum.reduceat(np.diff(encoded.offsets), starts)
    pieces = [encoded.data[begin:end] for begin, end in pairwise(encoded.offsets[np.append(starts, len(rows))].tolist())]
    block = SharedChunks()
    block.lend(pool.overdraw(pool.chunks_for(len(encoded.data))))
    opened = []
    told = (numbers.tolist() for numbers in (counts, first_timestamps, max_timestamps, largest))
    for moved, piece, count, first, latest, largest_record in zip(parts, pieces, *told, strict=True):
        part = OpenBatch(batch.queue, batch.opened.tally, batch.created_ms, first)
        part.memory.share(piece, block)
        part.added(len(piece), count, latest, largest_record)
        part.rows = moved_rows(batch.opened.rows, moved)
        opened.append(part)
    return [_sealed(part, batch, pool) for part in opened]


def _sealed(opened: OpenBatch, batch: SealedBatch, pool: BufferPool) -> SealedBatch:
    part = SealedBatch(opened, batch.codec, batch.level)
    part.tally = batch.tally
    part.first_sent_ms = batch.first_sent_ms
    part.last_error = batch.last_error
    part.known_not_stored = True  # certainly not stored
    part.free_raw(pool)
    return part


# Records that a broker rejected, kept as they were sent until their task takes them


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
    pairs = [[{"key": key, "value": value} for key, value in own] for own in headers]
    return RecordColumns(
        len(fields),
        value=array_of_bytes(values),
        key=array_of_bytes(keys),
        headers=pa.array(pairs, LIST_OF_HEADERS) if any(headers) else None,
        timestamp=timestamps,
    )


# What a response says about records


def keeps_rejected(batch: SealedBatch) -> bool:
    """Returns whether the batch's scope gets rejected records instead of failing."""
    tally = batch.tally
    return tally is not None and tally.keeps_rejected


def without_names(batch: SealedBatch) -> Action:
    """Returns the action for a batch with rejected records that the response does not name."""
    if batch.record_count == 1:
        return Action.REJECTED
    return Action.HALVE if keeps_rejected(batch) else Action.FAIL


def rejected(batch: SealedBatch, answer: PartitionProduceResponse) -> Mapping[int, BrokerError]:
    """Returns the errors of records that the response rejects, by ascending index. Ignores indexes outside the batch."""
    said = {named.batch_index: named.batch_index_error_message for named in answer.record_errors}
    rows = sorted(row for row in said if 0 <= row < batch.record_count)
    return {row: record_error(batch, answer, said[row]) for row in rows}


def others(batch: SealedBatch, rows: Mapping[int, BrokerError]) -> NDArray[np.intp]:
    return np.setdiff1d(np.arange(batch.record_count), list(rows), assume_unique=True)


def record_error(batch: SealedBatch, answer: PartitionProduceResponse, message: str | None) -> BrokerError:
    """Returns the error of one record. message: what the broker says about it."""
    queue, code = batch.queue, answer.error_code
    name = error_facts(code).name
    why = quoted(message or answer.error_message or NO_REASON)
    text = f"topic {queue.topic} partition {queue.partition}: the broker rejected the record: {name}: {why}"
    text = "; ".join([text, *advice(batch, code)])
    return BrokerError(text, topic=queue.topic, partition=queue.partition, error_code=code, error=name)


def advice(batch: SealedBatch, code: int) -> Iterator[str]:
    """Yields what to do about an error of records."""
    if code in ADVICE:
        yield ADVICE[code]
    if code == ErrorCode.INVALID_TIMESTAMP:
        both = in_both_units(batch.max_timestamp) or in_both_units(batch.first_timestamp)
        if both is not None:
            yield f"{both}; in Spark, a cast of a number to timestamp takes seconds: use timestamp_millis or timestamp_micros"
