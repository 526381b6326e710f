"""Some of a sealed batch's records, or all of them, as batches of their own: ProducerBatch.split of Java, for any rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool, SharedChunks
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.records.batch_rewrite import WrittenRecords, encode_again, written_records
from spark_kafka_sink.records.compression import decompress

Rows = NDArray[np.intp]


def split(batch: SealedBatch, limit: int, pool: BufferPool) -> list[SealedBatch]:
    """All records of a batch of more than one, in order, in two batches or more.

    limit: bytes of records, before compression, that none has more of, but for a single larger record; less than the batch has.
        A record counts as it is now: behind another first timestamp it may take some bytes more.
    """
    records = _records(batch)
    return _rebuilt(batch, records, runs(records.sizes, limit), pool)


def rebuild(batch: SealedBatch, parts: Sequence[Rows], pool: BufferPool) -> list[SealedBatch]:
    """The rows of each part (numbers from 0 on, in order, at least one) as a batch: sealed and not numbered, of the batch's
    queue, tally and age, as if it had never been sent. The batch keeps its own memory: free it when the parts are in its place.
    """
    return _rebuilt(batch, _records(batch), parts, pool)


def runs(sizes: NDArray[np.int64], limit: int) -> list[Rows]:
    """Rows of these sizes in runs of at most `limit` bytes, but for a single larger row."""
    ends = np.cumsum(sizes)
    found, start, done = [], 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, done + limit, side="right")))
        found.append(np.arange(start, stop))
        start, done = stop, int(ends[stop - 1])
    return found


def _records(batch: SealedBatch) -> WrittenRecords:
    return written_records(decompress(batch.codec, b"".join(batch.payload), batch.raw_size), batch.record_count)


def _rebuilt(batch: SealedBatch, records: WrittenRecords, parts: Sequence[Rows], pool: BufferPool) -> list[SealedBatch]:
    """Encoded in one go, as an append is; the parts share that block until they are compressed or done."""
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
    for piece, count, first, latest, largest_record in zip(pieces, *told, strict=True):
        part = OpenBatch(batch.queue, batch.opened.tally, batch.created_ms, first)
        part.memory.share(piece, block)
        part.added(len(piece), count, latest, largest_record)
        opened.append(part)
    return [_sealed(part, batch, pool) for part in opened]


def _sealed(opened: OpenBatch, batch: SealedBatch, pool: BufferPool) -> SealedBatch:
    part = SealedBatch(opened, batch.codec, batch.level)
    part.tally = batch.tally
    part.first_sent_ms = batch.first_sent_ms
    part.last_error = batch.last_error
    part.known_not_stored = True  # not stored, for certain
    part.free_raw(pool)
    return part
