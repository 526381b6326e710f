"""Splits a sealed batch: all or some of its records become new batches. Java's ProducerBatch.split, for any rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool, SharedChunks
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.row_origins import moved_rows
from spark_kafka_sink.records.batch_rewrite import WrittenRecords, encode_again, written_records
from spark_kafka_sink.records.compression import decompress

Rows = NDArray[np.intp]


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
