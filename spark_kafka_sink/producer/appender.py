"""From columns to batches: size, partition, group, plan, allocate, encode once for all partitions, copy.

RecordAccumulator.append of Java, for a whole Arrow batch: under the lock the rows are dealt to batches, the lock is let go to
wait for memory, and if that took a wait the rows are dealt again, because the sender may have taken a batch meanwhile.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import RecordTooLargeError
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.grouping import group
from spark_kafka_sink.producer.partition_queue import PartitionQueue
from spark_kafka_sink.producer.producer_batch import OpenBatch
from spark_kafka_sink.producer.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.send_scope import SendScope
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.columns import NO_TIMESTAMP, RecordColumns
from spark_kafka_sink.records.encoder import encode_records
from spark_kafka_sink.records.sizes import size_upper_bounds

# Rows encoded at once: above 10,000 page faults take over (60 to 100 ns a row), below 5,000 the fixed cost of a call does.
MAX_ROWS = 10_000
# Bytes encoded at once, so that large rows do not double the memory of an Arrow batch.
MAX_BYTES = 4 * 1024 * 1024
# A record without key, value and headers: length, attributes, both deltas, key length, value length, header count.
MIN_RECORD_SIZE = 7
# More than any open batch's age: its records expire before (delivery.timeout.ms is at most 25 days).
MAX_AGE_MS = 2**33


@dataclass(slots=True)
class Plan:
    """Pieces: consecutive rows, in partition order, that go to one batch each; parallel lists, one entry a piece.

    A batch is None until the memory for a new one is there. full: no more rows come to it. Piece i ends where the next begins,
    the last one at `stop`. chunks: what it all takes at most. With 1,000 partitions there are 1,000 pieces an Arrow batch, so
    each list costs 30 ns a piece where an object a piece took 300.
    """

    stop: int
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


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows of one topic in partition order: run i, of partition partition_ids[i], is rows starts[i] to starts[i + 1].

    ends[j] is the number of bytes of the rows before j at most, shape (n + 1,). timestamps is in partition order too.
    """

    topic: str
    columns: RecordColumns
    order: NDArray[np.intp] | None
    partition_ids: list[int]
    starts: list[int]
    ends: NDArray[np.int64]
    timestamps: NDArray[np.int64] | None
    now: int

    def timestamp(self, row: int) -> int:
        return self.now if self.timestamps is None else int(self.timestamps[row])

    def bytes_before(self, row: int) -> int:
        return int(self.ends[row])


Sizes = NDArray[np.int64]
Partitions = NDArray[np.int32]


class Appender:
    """Encodes in the calling task's thread. Holds no state of its own but the settings, so threads do not meet here."""

    def __init__(
        self, config: ProducerConfig, accumulator: RecordAccumulator, pool: BufferPool, wakeup: Callable[[], None]
    ) -> None:
        # An append never asks for more than half of the memory at once, so that two can always make progress in turn.
        self._max_chunks = max(pool.capacity // 2, 1)
        self._batch_size = min(config.batch_size, self._max_chunks * pool.chunk_size)
        self._max_record_size = min(config.max_request_size, pool.capacity * pool.chunk_size)
        self._max_block_s = config.max_block_ms / 1000
        self._accumulator = accumulator
        self._pool = pool
        self._wakeup = wakeup

    def sizes(self, topic: str, columns: RecordColumns) -> Sizes:
        """Bytes of each row at most. RecordTooLargeError names the first row that could never be sent."""
        # The time of append is never far from a batch's first; timestamps that were given can be anywhere.
        timestamp_range = MAX_AGE_MS if columns.timestamp is None else None
        sizes = size_upper_bounds(columns, timestamp_range=timestamp_range, max_offset_delta=self._batch_size // MIN_RECORD_SIZE)
        largest = int(sizes.max(initial=0)) + HEADER_SIZE
        if largest > self._max_record_size:
            row = int(np.argmax(sizes + HEADER_SIZE > self._max_record_size))
            raise RecordTooLargeError(
                f"topic {topic}: row {row} of {columns.num_records} takes {int(sizes[row]) + HEADER_SIZE} bytes, more than"
                f" max.request.size or buffer.memory allow ({self._max_record_size}); nothing of these rows was buffered",
                topic=topic,
                row=row,
            )
        return sizes

    def slices(self, columns: RecordColumns, sizes: Sizes) -> Iterator[tuple[RecordColumns, Sizes]]:
        """The columns in parts of at most MAX_ROWS rows and, but for a single larger row, MAX_BYTES bytes."""
        ends = np.cumsum(sizes)
        start = 0
        while start < columns.num_records:
            done = int(ends[start - 1]) if start else 0
            by_bytes = int(np.searchsorted(ends, done + MAX_BYTES, side="right"))
            stop = max(start + 1, min(by_bytes, start + MAX_ROWS))
            if start == 0 and stop >= columns.num_records:
                yield columns, sizes
                return
            stop = min(stop, columns.num_records)
            yield columns.slice(start, stop - start), sizes[start:stop]
            start = stop

    def append(
        self,
        scope: SendScope,
        topic: str,
        columns: RecordColumns,
        sizes: Sizes,
        partitions: Partitions,
        count: int,
    ) -> None:
        """Put each row into an open batch of its partition. BufferExhaustedError when memory stays out for max.block.ms."""
        rows = self._grouped(topic, columns, sizes, partitions, count)
        deadline = time.monotonic() + self._max_block_s
        with scope.appending:
            start = 0
            while start < columns.num_records:
                start = self._append_from(start, scope, rows, deadline)

    def _grouped(self, topic: str, columns: RecordColumns, sizes: Sizes, partitions: Partitions, count: int) -> GroupedRows:
        groups = group(partitions, count)
        now = time.time_ns() // 1_000_000
        timestamps = columns.timestamp
        if timestamps is not None:
            timestamps = np.where(timestamps == NO_TIMESTAMP, now, timestamps)
        if groups.order is not None:
            sizes = sizes[groups.order]
            timestamps = None if timestamps is None else timestamps[groups.order]
        ends = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=ends[1:])
        return GroupedRows(topic, columns, groups.order, groups.partition_ids, groups.starts, ends, timestamps, now)

    def _append_from(self, start: int, scope: SendScope, rows: GroupedRows, deadline: float) -> int:
        """One round: as many rows from `start` on as half of the memory holds. Returns the row to go on with."""
        plan, memory = self._plan_with_memory(start, scope, rows, deadline)
        batches: list[OpenBatch] = []
        try:
            batches = self._batches(scope, rows, plan)
            self._encode(rows, plan, batches, memory)
        finally:
            self._publish(scope, plan, batches)
            self._pool.deallocate(memory)
        return plan.stop

    def _plan_with_memory(
        self, start: int, scope: SendScope, rows: GroupedRows, deadline: float
    ) -> tuple[Plan, list[memoryview]]:
        """Deal the rows to batches, with the memory it takes, and claim those batches for writing."""
        memory: list[memoryview] = []
        while True:
            with self._accumulator.lock:
                plan = self._plan(start, scope, rows)
                if len(memory) < plan.chunks:
                    more = self._pool.try_allocate(plan.chunks - len(memory))
                    memory += more or []
                if len(memory) >= plan.chunks:
                    for batch in plan.batches:
                        if batch is not None:
                            batch.writing = True  # the sender must not take it now
                    return plan, memory
                self._accumulator.memory_waiters += 1
            # What is held is given back first: two appends that each hold a part of what the other needs would wait for ever.
            self._pool.deallocate(memory)
            try:
                self._wakeup()
                memory = self._pool.allocate(plan.chunks, deadline)
            finally:
                with self._accumulator.lock:
                    self._accumulator.memory_waiters -= 1

    def _plan(self, start: int, scope: SendScope, rows: GroupedRows) -> Plan:
        """Under the accumulator's lock. Runs that fit into an open batch are the common case and cost a comparison or two."""
        queues = self._accumulator.queues(rows.topic)
        chunk_size, batch_size, max_chunks = self._pool.chunk_size, self._batch_size, self._max_chunks
        plan = Plan(start)
        first = max(bisect_right(rows.starts, start) - 1, 0)
        sizes = np.diff(rows.ends[rows.starts[first:]]).tolist()
        sizes[0] -= rows.bytes_before(start) - rows.bytes_before(rows.starts[first])
        position = start
        for partition, stop, size in zip(rows.partition_ids[first:], rows.starts[first + 1 :], sizes, strict=True):
            queue = queues.get(partition) or self._accumulator.new_queue(rows.topic, partition)
            batch = queue.open
            if batch is not None and batch.scope is not scope:
                self._accumulator.close_open(queue)
                batch = None
            if batch is not None and batch.size + size <= batch_size:
                chunks = -((batch.room - size) // chunk_size) if size > batch.room else 0
                if plan.chunks + chunks > max_chunks and plan.starts:
                    return plan
                plan.add(queue, batch, position, stop, full=False, chunks=chunks)
            elif not self._cut(plan, queue, batch, rows, position, stop):
                return plan
            position = stop
        return plan

    def _cut(self, plan: Plan, queue: PartitionQueue, batch: OpenBatch | None, rows: GroupedRows, start: int, stop: int) -> bool:
        """Deal a run that does not fit into one open batch. False when the memory of this round is dealt."""
        while start < stop:
            room = self._batch_size - (batch.size if batch else 0)
            end = int(np.searchsorted(rows.ends, rows.bytes_before(start) + room, side="right")) - 1
            if batch is None:
                end = max(end, start + 1)
            end = min(end, stop)
            if end > start:
                size = rows.bytes_before(end) - rows.bytes_before(start)
                chunks = max(0, -(-(size - (batch.room if batch else 0)) // self._pool.chunk_size))
                if plan.chunks + chunks > self._max_chunks and plan.starts:
                    return False
                plan.add(queue, batch, start, end, full=end < stop or size >= room, chunks=chunks)
            elif batch is not None:
                self._accumulator.close_open(queue)
            batch = None
            start = end
        return True

    def _batches(self, scope: SendScope, rows: GroupedRows, plan: Plan) -> list[OpenBatch]:
        """The batch of each piece; the new ones are nobody's yet."""
        created_ms = time.monotonic_ns() // 1_000_000
        return [
            batch or OpenBatch(queue, scope, created_ms, rows.timestamp(start))
            for queue, batch, start in zip(plan.queues, plan.batches, plan.starts, strict=True)
        ]

    def _encode(self, rows: GroupedRows, plan: Plan, batches: list[OpenBatch], memory: list[memoryview]) -> None:
        """Without a lock: encode all rows of the plan at once and copy each piece into its batch."""
        first, last = plan.starts[0], plan.stop
        starts = np.array(plan.starts, dtype=np.intp)
        counts = np.diff(starts, append=last)
        bases = np.array([batch.record_count for batch in batches]) - starts
        offset_deltas = (np.arange(first, last) + np.repeat(bases, counts)).astype(np.int32)
        base_timestamps = np.array([batch.first_timestamp for batch in batches], dtype=np.int64)
        timestamp_deltas, max_timestamps = _timestamp_deltas(rows, first, last, starts, counts, base_timestamps)
        whole = rows.order is None and last - first == rows.columns.num_records
        order = None if whole else np.arange(first, last) if rows.order is None else rows.order[first:last]
        encoded = encode_records(rows.columns, order, offset_deltas, timestamp_deltas)
        data = encoded.data
        bounds = encoded.offsets[np.append(starts - first, last - first)].tolist()
        begin = 0
        for batch, end, count, max_timestamp in zip(batches, bounds[1:], counts.tolist(), max_timestamps, strict=True):
            batch.write(data[begin:end], memory)
            batch.record_count += count
            batch.max_timestamp = max(batch.max_timestamp, max_timestamp)
            begin = end

    def _publish(self, scope: SendScope, plan: Plan, batches: list[OpenBatch]) -> None:
        """Let the sender have what was written. New batches that got nothing, because encoding failed, are not added."""
        accumulator = self._accumulator
        with accumulator.lock:
            wake = bool(scope.deferred)
            for batch, full in zip(batches, plan.full, strict=False):
                if batch.queued:
                    batch.writing = False
                    if full and batch.queue.open is batch and batch.record_count:
                        wake = True
                        accumulator.close_open(batch.queue)
                elif batch.record_count and not accumulator.aborted:
                    batch.queued = wake = True
                    accumulator.add(batch, full=full)
            accumulator.undefer(scope.deferred)
        if wake:
            self._wakeup()


def _timestamp_deltas(
    rows: GroupedRows, first: int, last: int, starts: NDArray[np.intp], counts: NDArray[np.intp], bases: NDArray[np.int64]
) -> tuple[NDArray[np.int64] | None, list[int]]:
    """Each row's distance from its batch's first timestamp (None: all 0), and the largest timestamp of each piece."""
    if rows.timestamps is None:
        largest = [rows.now] * len(bases)
        if (bases == rows.now).all():
            return None, largest
        return np.repeat(rows.now - bases, counts), largest
    timestamps = rows.timestamps[first:last]
    return timestamps - np.repeat(bases, counts), np.maximum.reduceat(timestamps, starts - first).tolist()
