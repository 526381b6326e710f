"""Turns columns into batches: size, partition, group, plan, allocate, encode once for all partitions, copy.

RecordAccumulator.append of Java, for a whole Arrow batch: under the lock the rows are dealt to batches, the lock is let go to
wait for memory, and if that took a wait the rows are dealt again, because the sender may have taken a batch meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import BufferExhaustedError, KafkaSinkError, RecordTooLargeError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.accumulator.append_plan import LARGE_ROW, GroupedRows, Partitions, Plan, Planner, Sizes
from spark_kafka_sink.producer.accumulator.buffer_pool import Chunk, SharedChunks
from spark_kafka_sink.producer.accumulator.produce_result import Thunk
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.request_size import batch_limit
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.lifecycle import NO_WAIT
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encoder import encode_records
from spark_kafka_sink.records.sizes import size_upper_bounds

# Rows encoded at once: above 10,000 page faults take over (60 to 100 ns a row), below 5,000 the fixed cost of a call does.
MAX_ROWS = 10_000
# But where there are many partitions: a piece of a partition costs 4 to 5 us, however few rows it has. 40,000 rows at once over
# 1,000 partitions take 0.43 us a row, 10,000 take 0.73.
ROWS_PER_PARTITION = 40
# Bytes encoded at once, so that large rows do not double the memory of an Arrow batch. A call has a fixed cost of some 0.5 ms
# (its Python, cold in the processor's caches), so 10,000 rows of 1 KB in three calls of 4 MB took 0.78 us a row and in one 0.50.
MAX_BYTES = 12 * 1024 * 1024
# Of large rows a call has few anyway.
MAX_BYTES_OF_LARGE_ROWS = 4 * 1024 * 1024
# Chunks that a partition's rows of one append must fill on average to be sent from where they were encoded, which takes a
# seventh (100 bytes) to a quarter (1 KB) less CPU than to copy them.
STAY_CHUNKS = 2
# A block that was encoded is held by the slowest of its partitions, so what was not acked for so long (its leader is away) must
# not come to hold more of them: rows are copied then. And this part of the pool is never blocks; an append that has waited for
# a while asks for no more than half of it. With a quarter of the pool 1 KB rows took 1.5 us, with a sixteenth 1.2, without 1.1.
STUCK_MS = 2000
KEPT_FROM_BLOCKS = 16
PATIENCE_S = 0.1
# A record without key, value and headers: length, attributes, both deltas, key length, value length, header count.
MIN_RECORD_SIZE = 7
# Makes what is completed with some of an append's rows, which are given by their places in its columns.
CompletionFactory = Callable[[Sequence[int]], Thunk]
# More than any open batch's age: its records expire before (delivery.timeout.ms is at most 25 days).
MAX_AGE_MS = 2**33


class Appender:
    """Encodes in the calling task's thread. Holds no state of its own but the settings, so threads do not meet here."""

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator, wakeup: Callable[[], None]) -> None:
        """wakeup: makes the sender's thread look at what is ready."""
        pool = accumulator.pool
        # An append never asks for more than half of the memory at once, so that two can always make progress in turn.
        self._max_chunks = max(pool.capacity // 2, 1)
        self._batch_size = min(batch_limit(config), self._max_chunks * pool.chunk_size)
        # Room for two batches at least, so that there is always a next one.
        self._kept_from_blocks = max(pool.capacity // KEPT_FROM_BLOCKS, 2 * pool.chunks_for(self._batch_size))
        self._planner = Planner(accumulator, self._batch_size, pool.chunk_size)
        self._max_record_size = min(config.max_request_size, pool.capacity * pool.chunk_size)
        self._max_block_s = config.max_block_ms / 1000
        self._accumulator = accumulator
        self._pool = pool
        self._wakeup = wakeup

    def sizes(self, tally: Tally, topic: str, columns: RecordColumns) -> Sizes:
        """Bytes of each row at most. RecordTooLargeError names the first row that could never be sent."""
        # The time of append is never far from a batch's first; timestamps that were given can be anywhere, and so can the rows
        # without one that come after them into the same batch.
        tally.has_timestamps = tally.has_timestamps or columns.timestamp is not None
        timestamp_range = None if tally.has_timestamps else MAX_AGE_MS
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

    def append(
        self,
        tally: Tally,
        topic: str,
        columns: RecordColumns,
        sizes: Sizes,
        partitions: Partitions,
        count: int,
        *,
        deadline: float | None = None,
        completion_for: CompletionFactory | None = None,
    ) -> None:
        """Put each row into an open batch of its partition, of which the topic has `count`.

        sizes, partitions: shape (num_records,). BufferExhaustedError when memory for the next part of the rows stays out until
        `deadline`; without one for max.block.ms: a slow broker that does take rows may be waited for longer in all. With NO_WAIT
        a little is borrowed at once instead. completion_for is asked once for each batch that rows go to. An error's fact
        `buffered` is how many rows went into batches all the same.
        """
        buffered = 0
        try:
            for start, stop in parts(sizes, max(MAX_ROWS, ROWS_PER_PARTITION * count)):
                tally.raise_error()
                part = columns.slice(start, stop - start)
                long_from = STAY_CHUNKS * self._pool.chunk_size
                rows = GroupedRows.of(topic, part, sizes[start:stop], partitions[start:stop], count, long_from)
                until = time.monotonic() + self._max_block_s if deadline is None else deadline
                attach = None if completion_for is None else partial(_attach, rows, start, completion_for)
                with tally.appending:
                    while buffered < stop:
                        buffered = start + self._append_from(buffered - start, tally, rows, until, attach)
        except KafkaSinkError as error:
            error.facts["buffered"] = buffered
            raise

    def _append_from(
        self,
        start: int,
        tally: Tally,
        rows: GroupedRows,
        deadline: float,
        attach: Callable[[OpenBatch, int, int], None] | None,
    ) -> int:
        """One round: as many rows from `start` on as half of the memory holds. Returns the row to go on with."""
        memory: list[Chunk] = []
        claimed: list[OpenBatch] = []
        batches: list[OpenBatch] = []
        full: list[bool] = []
        aborted = False
        try:
            plan = self._plan_with_memory(start, tally, rows, deadline, memory, claimed)
            batches, full = self._batches(tally, rows, plan), plan.full
            self._encode(rows, plan, batches, memory, attach)
        except BaseException:
            for batch in batches:
                batch.drop_unfinished()
                if not batch.record_count:  # it will not be published
                    batch.memory.give_back(self._pool)
            raise
        finally:
            with self._accumulator.lock:
                try:
                    wake = self._publish(tally, claimed, batches, full)
                except BaseException:  # an interrupt: a batch that stays claimed would never be sent, and never expire
                    self._publish(tally, claimed, batches, full)
                    self._wakeup()
                    raise
                aborted = self._accumulator.aborted
            if wake:
                self._wakeup()
            self._pool.deallocate(memory)
            if aborted:
                error = UsageError(f"topic {rows.topic}: the producer was closed or failed during the append", topic=rows.topic)
                for batch in batches or claimed:  # the sender's thread has left them to this one (Delivery.fail_all)
                    batch.failed(error)
        if aborted:
            raise error
        return plan.stop

    def _plan_with_memory(
        self,
        start: int,
        tally: Tally,
        rows: GroupedRows,
        deadline: float,
        memory: list[Chunk],
        claimed: list[OpenBatch],
    ) -> Plan:
        """Deals the rows to batches, and claims those that are open already for writing. Each claim and chunk is put into the two
        lists as soon as it is acquired, so an interrupt cannot leak it."""
        patient, begun = True, time.monotonic()
        while True:
            with self._accumulator.lock:
                free = self._pool.free_chunks + len(memory)
                # After a wait what was waited for is what there is: to ask for more might be to wait for ever.
                maximum = len(memory) or (self._max_chunks if patient else self._few_chunks(free))
                plan = self._planner.plan(start, tally, rows, maximum, stay=self._may_stay(rows, start, free))
                if len(memory) < plan.chunks:
                    more = self._pool.try_allocate(plan.chunks - len(memory))
                    if more is None and deadline == NO_WAIT and not patient:
                        more = self._pool.borrow(plan.chunks - len(memory))
                    memory += more or []
                if len(memory) >= plan.chunks:
                    claimed += [batch for batch in plan.batches if batch is not None]
                    for batch in claimed:
                        batch.writing = True  # the sender must not take it now
                    return plan
            # What is held is given back first: two appends that each hold a part of what the other needs would wait for ever.
            held = memory.copy()
            memory.clear()
            self._pool.deallocate(held)
            until = min(deadline, begun + PATIENCE_S) if patient else deadline
            try:
                memory += self._wait_for_memory(plan.chunks, until, begun)
            except BufferExhaustedError:
                if not patient:
                    raise
                patient = False

    def _wait_for_memory(self, n_chunks: int, until: float, begun: float) -> list[Chunk]:
        accumulator, waiting = self._accumulator, False
        try:
            with accumulator.lock:
                accumulator.memory_waiters += 1
                waiting = True
            self._wakeup()
            return self._pool.allocate(n_chunks, until, begun)
        finally:
            if waiting:
                with accumulator.lock:
                    accumulator.memory_waiters -= 1

    def _few_chunks(self, free_chunks: int) -> int:
        return min(max(free_chunks, self._kept_from_blocks // 2), self._max_chunks)

    def _may_stay(self, rows: GroupedRows, start: int, free_chunks: int) -> bool:
        needed = (rows.bytes_before(-1) - rows.bytes_before(start)) // self._pool.chunk_size + 1
        enough = free_chunks - needed >= self._kept_from_blocks
        return rows.long_runs and enough and self._accumulator.oldest_age_ms(monotonic_ms()) <= STUCK_MS

    def _batches(self, tally: Tally, rows: GroupedRows, plan: Plan) -> list[OpenBatch]:
        """The batch of each piece; the new ones are nobody's yet."""
        created_ms = monotonic_ms()
        return [
            batch or OpenBatch(queue, tally, created_ms, rows.timestamp(start))
            for queue, batch, start in zip(plan.queues, plan.batches, plan.starts, strict=True)
        ]

    def _encode(
        self,
        rows: GroupedRows,
        plan: Plan,
        batches: list[OpenBatch],
        memory: list[Chunk],
        attach: Callable[[OpenBatch, int, int], None] | None,
    ) -> None:
        """Encodes all rows of the plan at once, without a lock, and adds each piece to its batch."""
        first, last = plan.starts[0], plan.stop
        starts = np.array(plan.starts, dtype=np.intp)
        counts = np.diff(starts, append=last)
        if len(batches) == 1:
            offset_deltas = np.arange(batches[0].record_count, batches[0].record_count + last - first, dtype=np.int32)
        else:
            bases = np.array([batch.record_count for batch in batches]) - starts
            offset_deltas = np.arange(first, last, dtype=np.int32)
            offset_deltas += np.repeat(bases.astype(np.int32), counts)
        base_timestamps = np.array([batch.first_timestamp for batch in batches], dtype=np.int64)
        timestamp_deltas, max_timestamps = _timestamp_deltas(rows, first, last, starts, counts, base_timestamps)
        whole = rows.order is None and last - first == rows.columns.num_records
        order = None if whole else np.arange(first, last) if rows.order is None else rows.order[first:last]
        encoded = encode_records(rows.columns, order, offset_deltas, timestamp_deltas)
        bounds = encoded.offsets[np.append(starts - first, last - first)].tolist()
        pieces = [encoded.data[begin:end] for begin, end in pairwise(bounds)]
        largest = np.maximum.reduceat(np.diff(encoded.offsets), starts - first).tolist()
        if plan.stay:
            self._share(pieces, batches, memory)
        else:
            _copy(pieces, batches, memory)
        told = zip(batches, pieces, counts.tolist(), max_timestamps, largest, strict=True)
        for batch, piece, count, max_timestamp, largest_record in told:
            batch.added(len(piece), count, max_timestamp, largest_record)
            if attach is not None:
                attach(batch, first, first + count)
                first += count

    def _share(self, pieces: list[memoryview], batches: list[OpenBatch], memory: list[Chunk]) -> None:
        """The batches share the block that was encoded, which takes the place of as many chunks."""
        block = SharedChunks()
        for batch, piece in zip(batches, pieces, strict=True):
            batch.memory.share(piece, block)
        needed = self._pool.chunks_for(sum(map(len, pieces)))
        block.lend(memory[-needed:])
        del memory[-needed:]

    def _publish(self, tally: Tally, claimed: list[OpenBatch], batches: list[OpenBatch], full: list[bool]) -> bool:
        """Let the sender have what was written; whether there is something for it to do. The accumulator's lock is held. Once
        more does nothing. New batches that got nothing, because encoding failed, are not added."""
        accumulator = self._accumulator
        wake = False
        for batch in claimed:
            batch.writing = False
        for batch, is_full in zip(batches, full, strict=False):
            if batch.queued:
                if is_full and batch.queue.open is batch and batch.record_count:
                    wake = True
                    accumulator.close_open(batch.queue)
            elif batch.record_count and not accumulator.aborted:
                wake = True
                accumulator.add(batch, full=is_full)
                batch.queued = True
        return accumulator.undefer(tally) or wake


def parts(sizes: Sizes, max_rows: int) -> Iterator[tuple[int, int]]:
    """First and last row of parts of at most so many rows and, but for a single larger row, so many bytes."""
    total = int(sizes.sum())
    max_bytes = MAX_BYTES if total <= LARGE_ROW * len(sizes) else MAX_BYTES_OF_LARGE_ROWS
    if len(sizes) <= max_rows and total <= max_bytes:
        yield 0, len(sizes)
        return
    ends = np.cumsum(sizes)
    start = done = 0
    while start < len(sizes):
        by_bytes = int(np.searchsorted(ends, done + max_bytes, side="right"))
        stop = min(max(start + 1, min(by_bytes, start + max_rows)), len(sizes))
        yield start, stop
        start, done = stop, int(ends[stop - 1])


def _attach(rows: GroupedRows, offset: int, completion_for: CompletionFactory, batch: OpenBatch, start: int, stop: int) -> None:
    """Rows `start` to `stop`, in partition order, are the last that were added to the batch."""
    places = range(start, stop) if rows.order is None else rows.order[start:stop].tolist()
    thunk = completion_for([place + offset for place in places] if offset else places)
    batch.attach(thunk, batch.record_count - (stop - start))


def _copy(pieces: list[memoryview], batches: list[OpenBatch], memory: list[Chunk]) -> None:
    for chunk in memory:
        _ = chunk.memory  # made before anything is written, so that no batch is left with half of a piece
    for batch, piece in zip(batches, pieces, strict=True):
        batch.memory.copy(piece, memory)


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
