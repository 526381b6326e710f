"""From columns to batches: size, partition, group, plan, allocate, encode once for all partitions, copy.

RecordAccumulator.append of Java, for a whole Arrow batch: under the lock the rows are dealt to batches, the lock is let go to
wait for memory, and if that took a wait the rows are dealt again, because the sender may have taken a batch meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
class Piece:
    """Consecutive rows, in partition order, that go to one batch. `batch` is None until memory for a new one is there."""

    queue: PartitionQueue
    batch: OpenBatch | None
    start: int
    stop: int
    full: bool


@dataclass(slots=True)
class Plan:
    """Where the rows from the first piece's start to `stop` go, and how many chunks that takes at most."""

    pieces: list[Piece]
    stop: int
    chunks: int


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
        try:
            self._encode(scope, rows, plan, memory)
        finally:
            self._publish(scope, plan)
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
                    self._claim(plan)
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
        """Under the accumulator's lock. Runs that fit into an open batch are the common case and cost one comparison."""
        queues = self._accumulator.queues(rows.topic)
        chunk_size = self._pool.chunk_size
        plan = Plan([], start, 0)
        first = max(int(np.searchsorted(rows.starts, start, side="right")) - 1, 0)
        run_ends = rows.ends[rows.starts].tolist()
        for run in range(first, len(rows.partition_ids)):
            stop = rows.starts[run + 1]
            queue = queues.get(rows.partition_ids[run]) or self._accumulator.new_queue(rows.topic, rows.partition_ids[run])
            batch = queue.open
            if batch is not None and batch.scope is not scope:
                self._accumulator.close_open(queue)
                batch = None
            position = max(rows.starts[run], start)
            size = run_ends[run + 1] - (run_ends[run] if position == rows.starts[run] else rows.bytes_before(position))
            if batch is not None and batch.size + size <= self._batch_size:
                chunks = max(0, -(-(size - batch.room) // chunk_size))
                if plan.pieces and plan.chunks + chunks > self._max_chunks:
                    return plan
                plan.pieces.append(Piece(queue, batch, position, stop, full=False))
                plan.chunks += chunks
                plan.stop = stop
            elif not self._cut(plan, queue, batch, rows, position, stop):
                return plan
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
                if plan.pieces and plan.chunks + chunks > self._max_chunks:
                    return False
                plan.pieces.append(Piece(queue, batch, start, end, full=end < stop or size >= room))
                plan.chunks += chunks
                plan.stop = end
            elif batch is not None:
                self._accumulator.close_open(queue)
            batch = None
            start = end
        return True

    def _claim(self, plan: Plan) -> None:
        """Keep the sender from taking the batches that are about to be written to."""
        for piece in plan.pieces:
            if piece.batch is not None:
                piece.batch.writing = True

    def _encode(self, scope: SendScope, rows: GroupedRows, plan: Plan, memory: list[memoryview]) -> None:
        """Without a lock: encode all rows of the plan at once and copy each piece into its batch."""
        first, last = plan.pieces[0].start, plan.stop
        created_ms = time.monotonic_ns() // 1_000_000
        starts = np.array([piece.start for piece in plan.pieces], dtype=np.intp)
        counts = np.diff(starts, append=last)
        bases: list[int] = []
        base_timestamps: list[int] = []
        for piece in plan.pieces:
            if piece.batch is None:
                piece.batch = OpenBatch(piece.queue, scope, created_ms, rows.timestamp(piece.start))
            bases.append(piece.batch.record_count - piece.start)
            base_timestamps.append(piece.batch.first_timestamp)
        offset_deltas = (np.arange(first, last) + np.repeat(np.array(bases), counts)).astype(np.int32)
        timestamp_deltas, max_timestamps = _timestamp_deltas(rows, first, last, starts, counts, base_timestamps)
        order = np.arange(first, last) if rows.order is None else rows.order[first:last]
        whole = rows.order is None and last - first == rows.columns.num_records
        encoded = encode_records(rows.columns, None if whole else order, offset_deltas, timestamp_deltas)
        bounds = encoded.offsets[np.append(starts - first, last - first)].tolist()
        data = encoded.data
        for index, piece in enumerate(plan.pieces):
            batch = piece.batch
            assert batch is not None
            batch.write(data[bounds[index] : bounds[index + 1]], memory)
            batch.record_count += piece.stop - piece.start
            batch.max_timestamp = max(batch.max_timestamp, max_timestamps[index])

    def _publish(self, scope: SendScope, plan: Plan) -> None:
        """Let the sender have what was written. A batch that got nothing, because encoding failed, is not added."""
        wake = False
        with self._accumulator.lock:
            batches = [piece.batch for piece in plan.pieces if piece.batch is not None and piece.batch.record_count]
            wake = bool(scope.deferred)
            for piece in plan.pieces:
                batch = piece.batch
                if batch is None or not batch.record_count or self._accumulator.aborted:
                    continue
                if not batch.queued:
                    batch.queued = wake = True
                    self._accumulator.add(batch, full=piece.full)
                elif piece.full:
                    wake = True
                    self._accumulator.close_open(piece.queue)
            self._accumulator.written(batches, scope.deferred)
        if wake:
            self._wakeup()


def _timestamp_deltas(
    rows: GroupedRows, first: int, last: int, starts: NDArray[np.intp], counts: NDArray[np.intp], bases: list[int]
) -> tuple[NDArray[np.int64] | None, list[int]]:
    """Each row's distance from its batch's first timestamp (None: all 0), and the largest timestamp of each piece."""
    if rows.timestamps is None:
        if all(base == rows.now for base in bases):
            return None, [rows.now] * len(bases)
        return np.repeat(rows.now - np.array(bases, dtype=np.int64), counts), [rows.now] * len(bases)
    timestamps = rows.timestamps[first:last]
    largest = np.maximum.reduceat(timestamps, starts - first).tolist()
    return timestamps - np.repeat(np.array(bases, dtype=np.int64), counts), largest
