"""Assigns the rows of an Arrow batch, in partition order, to open and new batches."""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.records.arrow_arrays import repeated_number
from spark_kafka_sink.records.columns import NO_TIMESTAMP, RecordColumns

if TYPE_CHECKING:
    from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue
    from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
    from spark_kafka_sink.producer.accumulator.tally import Tally

Sizes = NDArray[np.int64]
Partitions = NDArray[np.int32]


# Bytes. Larger rows are always copied: blocks of them, freed by a thread other than the one that made them, stay with Arrow's
# allocator, which took up to 40 MB more than the chunks. Rows of 10 KB that are not copied take 7 instead of 11 us of both
# threads, with lz4 28 instead of 32. The peak of the process stays the same; with lz4 it is
# 271 instead of 244 MB, and does not grow further.
LARGE_ROW = 32 * 1024
# Runs that are planned at once. With 50,000 partitions an append has 35,000 runs, and memory for 1,000 batches at a time. To look
# at all that were left, in each of the 35 rounds, made planning quadratic: a fifth of the append's CPU.
MAX_RUNS = 4096


@dataclass(slots=True)
class Plan:
    """Pieces: consecutive rows in partition order, each for one batch; parallel lists with one entry per piece.

    A batch is None until memory for a new one is allocated. full: whether the batch takes no more rows. Piece i ends where the
    next begins, the last one at `stop`. chunks: upper bound for all pieces; at most max_chunks, unless the first piece needs
    more. stay: the pieces are sent from where they are encoded. With 1,000 partitions an append has 1,000 pieces, so each list
    costs 30 ns per piece where an object per piece took 300.
    """

    stop: int
    max_chunks: int
    stay: bool
    queues: list[PartitionQueue] = field(default_factory=list)
    batches: list[OpenBatch | None] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    full: list[bool] = field(default_factory=list)
    chunks: int = 0

    def add(self, queue: PartitionQueue, batch: OpenBatch | None, start: int, stop: int, *, full: bool, chunks: int) -> None:
        self.queues.append(queue)
        self.batches.append(batch)
        self.starts.append(start)
        self.full.append(full)
        self.stop = stop
        self.chunks += chunks


class Groups(NamedTuple):
    """Rows in partition order.

    order: position j holds input row order[j], shape (n,); None if the rows are already in order. partition_ids: each partition
    that has rows, once. starts: len(partition_ids) + 1 positions; partition_ids[i] has rows starts[i] to starts[i + 1]. Both are
    Python lists, because later steps loop over partitions.
    """

    order: NDArray[np.intp] | None
    partition_ids: list[int]
    starts: list[int]


def group(partitions: NDArray[np.int32], n_partitions: int) -> Groups:
    """Groups rows by partition, 0 <= partition < n_partitions, keeping their order within a partition.

    Rows that are already contiguous by partition are not moved, whatever the order of partitions.
    """
    if len(partitions) == 0:
        return Groups(None, [], [0])
    changes = partitions[1:] != partitions[:-1]
    n_changes = np.count_nonzero(changes)
    if n_changes < n_partitions:
        inner = (np.flatnonzero(changes) + 1).tolist() if n_changes else []
        partition_ids = partitions[[0, *inner]].tolist()
        if len(set(partition_ids)) == len(partition_ids):
            return Groups(None, partition_ids, [0, *inner, len(partitions)])
    # Up to 16 bits numpy's stable sort is a radix sort: 2 to 4 ns per row instead of 20 to 50.
    ids = partitions.astype(np.uint8 if n_partitions <= 1 << 8 else np.uint16 if n_partitions <= 1 << 16 else np.uint32)
    # Methods of arrays: numpy's functions of the same names run 2 us of Python each.
    counts = np.bincount(ids)
    present = counts.nonzero()[0]
    return Groups(ids.argsort(kind="stable"), present.tolist(), [0, *counts[present].cumsum().tolist()])


class GroupedRows(NamedTuple):
    """Rows of one topic in partition order: run i, of partition partition_ids[i], is rows starts[i] to starts[i + 1].

    ends[j] is an upper bound for the bytes of all rows before j, shape (n + 1,). timestamps is in partition order too. long_runs:
    whether the runs are long enough, with small enough rows, to be sent from where they are encoded; others are cheaper to copy.
    """

    topic: str
    columns: RecordColumns
    order: NDArray[np.intp] | None
    partition_ids: list[int]
    starts: list[int]
    ends: NDArray[np.int64]
    timestamps: NDArray[np.int64] | None
    now: int
    long_runs: bool

    @classmethod
    def of(
        cls, topic: str, columns: RecordColumns, sizes: Sizes, partitions: Partitions, count: int, long_from: int
    ) -> GroupedRows:
        """Groups rows by partition, of which there are `count`. Rows without a timestamp get the current time.

        A run is long if it has `long_from` bytes on average.
        """
        groups = group(partitions, count)
        now = time.time_ns() // 1_000_000
        timestamps = columns.timestamp
        if timestamps is not None:
            timestamps = np.where(timestamps == NO_TIMESTAMP, now, timestamps)
        size = repeated_number(sizes)
        if groups.order is not None:
            sizes = sizes if size is not None else sizes[groups.order]
            timestamps = None if timestamps is None else timestamps[groups.order]
        if size is not None:
            ends = np.arange(len(sizes) + 1) * size
        else:
            ends = np.zeros(len(sizes) + 1, dtype=np.int64)
            sizes.cumsum(out=ends[1:])
        long_runs = long_from * len(groups.partition_ids) <= int(ends[-1]) <= LARGE_ROW * len(sizes)
        return cls(topic, columns, groups.order, groups.partition_ids, groups.starts, ends, timestamps, now, long_runs)

    def timestamp(self, row: int) -> int:
        return self.now if self.timestamps is None else int(self.timestamps[row])

    def bytes_before(self, row: int) -> int:
        return int(self.ends[row])


class Planner:
    """Assigns rows to batches, for an append that holds the accumulator's lock. batch_size, chunk_size: bytes."""

    def __init__(self, accumulator: RecordAccumulator, batch_size: int, chunk_size: int) -> None:
        self._accumulator = accumulator
        self._batch_size = batch_size
        self._chunk_size = chunk_size

    def plan(self, start: int, tally: Tally, rows: GroupedRows, max_chunks: int, *, stay: bool) -> Plan:
        """Plans the rows from `start` on, in at most `max_chunks`, unless the first piece needs more, and at most MAX_RUNS runs.

        Runs that fit into one batch, open or new, are common. Their code is inlined here for the runs of 1,000 partitions.
        """
        queues = self._accumulator.queues(rows.topic)
        batch_size, chunk_size = self._accumulator.batch_limit(rows.topic, self._batch_size), self._chunk_size
        plan = Plan(start, max_chunks, stay)
        batches = plan.batches
        add_queue, add_batch, add_start, add_full = plan.queues.append, batches.append, plan.starts.append, plan.full.append
        first = max(bisect_right(rows.starts, start) - 1, 0)
        last = first + MAX_RUNS
        ends = rows.ends[rows.starts[first : last + 1]]
        sizes = (ends[1:] - ends[:-1]).tolist()
        sizes[0] -= rows.bytes_before(start) - rows.bytes_before(rows.starts[first])
        position = start
        for partition, stop, size in zip(rows.partition_ids[first:last], rows.starts[first + 1 : last + 1], sizes, strict=True):
            queue = queues.get(partition) or self._accumulator.new_queue(rows.topic, partition)
            batch = queue.open
            if batch is not None and batch.tally is not tally:
                self._accumulator.close_open(queue)
                batch = None
            left = batch_size - size if batch is None else batch_size - batch.size - size
            if left >= 0:
                room = 0 if stay or batch is None else batch.memory.room
                if size > room:
                    chunks = plan.chunks - (room - size) // chunk_size
                    if chunks > max_chunks and batches:
                        break
                    plan.chunks = chunks
                add_queue(queue)
                add_batch(batch)
                add_start(position)
                add_full(left < size // (stop - position))  # no room for another row
                plan.stop = stop
            elif not self._split_run(plan, queue, batch, rows, position, stop, batch_size):
                break
            position = stop
        return plan

    def _split_run(
        self,
        plan: Plan,
        queue: PartitionQueue,
        batch: OpenBatch | None,
        rows: GroupedRows,
        start: int,
        stop: int,
        batch_size: int,
    ) -> bool:
        """Plans a run that does not fit into one open batch. Returns False if the memory of this round is used up."""
        while start < stop:
            room = max(batch_size - (batch.size if batch else 0), 0)  # negative if the topic's limit was lowered
            end = int(np.searchsorted(rows.ends, rows.bytes_before(start) + room, side="right")) - 1
            if batch is None:
                end = max(end, start + 1)
            end = min(end, stop)
            if end > start:
                size = rows.bytes_before(end) - rows.bytes_before(start)
                free = 0 if plan.stay or batch is None else batch.memory.room
                chunks = max(0, -(-(size - free) // self._chunk_size))
                if plan.chunks + chunks > plan.max_chunks and plan.starts:
                    return False
                plan.add(queue, batch, start, end, full=end < stop or room - size < size // (end - start), chunks=chunks)
            elif batch is not None:
                self._accumulator.close_open(queue)
            batch = None
            start = end
        return True
