"""Turns columns into batches: size, partition, group, plan, allocate, encode once for all partitions, copy.

Like Java's RecordAccumulator.append, for a whole Arrow batch: rows are assigned to batches under the lock, which is released to
wait for memory. After a wait the rows are assigned again, because the sender may have taken a batch meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.errors import BufferExhaustedError, KafkaSinkError, RecordTooLargeError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.append_plan import LARGE_ROW, GroupedRows, Partitions, Plan, Planner, Sizes
from spark_kafka_sink.producer.accumulator.buffer_pool import Chunk, SharedChunks
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, Thunk
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.rejected_batches import AppendedRows, note_rows
from spark_kafka_sink.producer.accumulator.request_size import batch_limit
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.bad_rows import RowNumbers, too_large
from spark_kafka_sink.producer.base.lifecycle import NO_WAIT, Lifecycle
from spark_kafka_sink.producer.base.rate_limit import RateLimit
from spark_kafka_sink.records.arrow_arrays import byte_column, repeated_number
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encoder import size_upper_bounds
from spark_kafka_sink.records.pieces import EncodedPieces, Pieces, encode_pieces

# Rows encoded at once: above 10,000 page faults dominate (60 to 100 ns per row), below 5,000 the fixed cost of a call.
MAX_ROWS = 10_000
# More rows with many partitions: a partition's piece costs 4 to 5 us, however few rows it has. 40,000 rows at once over 1,000
# partitions take 0.43 us per row, 10,000 take 0.73.
ROWS_PER_PARTITION = 40
# Bytes encoded at once, so that large rows do not double the memory of an Arrow batch. A call has a fixed cost of some 0.5 ms
# (its Python code, with cold processor caches): 10,000 rows of 1 KB took 0.78 us each in three calls of 4 MB, and 0.50 in one.
MAX_BYTES = 12 * 1024 * 1024
# With large rows a call has few of them anyway.
MAX_BYTES_OF_LARGE_ROWS = 4 * 1024 * 1024
# Chunks that a partition's rows of one append must fill on average to be sent from where they were encoded, which takes a seventh
# (100 bytes) to a quarter (1 KB) less CPU than copying them.
STAY_CHUNKS = 2
# The slowest partition holds an encoded block. Rows are copied if a block was not acknowledged for this long (its leader is
# away), so that such partitions hold no more blocks. This part of the pool is never used for blocks; an append that has waited
# for a while requests at most half of it. With a quarter of the pool, rows of 1 KB took 1.5 us, with a sixteenth 1.2, without
# 1.1.
STUCK_MS = 2000
KEPT_FROM_BLOCKS = 16
PATIENCE_S = 0.1
# A record without key, value and headers: length, attributes, both deltas, key length, value length, header count.
MIN_RECORD_SIZE = 7
# More than any open batch's age: its records expire first (delivery.timeout.ms is at most 25 days).
MAX_AGE_MS = 2**33

CompletionFactory = Callable[[Sequence[int]], Thunk]
"""Makes a completion for some of an append's rows, given by their positions in its columns."""

OnPartitioned = Callable[[Partitions], None]
"""Callback that receives the partitions of an append's rows before any row is appended."""


class Append(NamedTuple):
    """Rows of one topic that a caller appends at once.

    Attributes:
        tally: counts them.
        topic: their topic.
        columns: keys, values and the rest.
        deadline: end of every wait, but not of one for a rate limit. With NO_WAIT some memory is borrowed at once instead. None:
            at most max.block.ms for metadata in total and for each wait for memory, so a slow broker that does accept rows may be
            waited for longer in total.
        completion_for: called once for each batch that receives rows.
        on_partitioned: as the type says.
        row_numbers: numbers the rows that brokers may reject.
        check_wait: raises if they must not wait for a rate limit any longer. None: they have waited before, or need not.
        may_be_large: see SendScope.append_serialized.
    """

    tally: Tally
    topic: str
    columns: RecordColumns
    deadline: float | None = None
    completion_for: CompletionFactory | None = None
    on_partitioned: OnPartitioned | None = None
    row_numbers: RowNumbers | None = None
    check_wait: Callable[[], None] | None = None
    may_be_large: bool = False


class _Encoding(NamedTuple):
    """Arguments of `encode_pieces` for the rows of a plan, and the last timestamp of each piece."""

    order: NDArray[np.intp] | None
    pieces: Pieces
    timestamp_deltas: NDArray[np.int64] | None
    max_timestamps: list[int]


class Appender:
    """Encodes rows in the calling thread. It has no state but the settings, so threads do not contend here."""

    def __init__(
        self, config: ProducerConfig, accumulator: RecordAccumulator, lifecycle: Lifecycle, rate_limit: RateLimit | None = None
    ) -> None:
        pool = accumulator.pool
        # An append never requests more than half of the memory at once, so that two can always make progress.
        self._max_chunks = max(pool.capacity // 2, 1)
        self._batch_size = min(batch_limit(config), self._max_chunks * pool.chunk_size)
        # Room for at least two batches, so that there is always a next one.
        self._kept_from_blocks = max(pool.capacity // KEPT_FROM_BLOCKS, 2 * pool.chunks_for(self._batch_size))
        self._planner = Planner(accumulator, self._batch_size, pool.chunk_size)
        self._limits = {"max.request.size": config.max_request_size, "buffer.memory": pool.capacity * pool.chunk_size}
        self._max_block_s = config.max_block_ms / 1000
        self._accumulator = accumulator
        self._pool = pool
        self._lifecycle = lifecycle
        self._rate_limit = rate_limit
        self._wakeup = lifecycle.wake_sender

    def sizes(self, rows: Append) -> Sizes:
        """Returns an upper bound for the bytes of each row. Raises RecordTooLargeError for the first that can never be sent."""
        tally, topic, columns = rows.tally, rows.topic, rows.columns
        # The current time is close to a batch's first timestamp. Given timestamps can be anywhere, and so can the current time
        # relative to them, for later rows in the same batch.
        tally.has_timestamps = tally.has_timestamps or columns.timestamp is not None
        timestamp_range = None if tally.has_timestamps else MAX_AGE_MS
        sizes = size_upper_bounds(columns, timestamp_range=timestamp_range, max_offset_delta=self._batch_size // MIN_RECORD_SIZE)
        size = repeated_number(sizes)
        largest = (int(sizes.max(initial=0)) if size is None else size) + HEADER_SIZE
        limits = {"buffer.memory": self._limits["buffer.memory"]} if rows.may_be_large else self._limits
        if largest > min(limits.values()):
            row = int(np.argmax(sizes + HEADER_SIZE > min(limits.values())))
            key = None if columns.key is None else byte_column(columns.key.slice(row, 1))[0].as_py()
            problem = too_large(int(sizes[row]) + HEADER_SIZE, key, limits)
            raise RecordTooLargeError(f"topic {topic}: row {row} of {columns.num_records}: {problem}", topic=topic, row=row)
        return sizes

    def append(self, append: Append, sizes: Sizes, partitions: Partitions, count: int) -> None:
        """Puts each row into an open batch of its partition, of which the topic has `count`.

        sizes, partitions: shape (num_records,). Raises BufferExhaustedError if memory for the next rows is not available in time.
        An error's fact `buffered` is the number of rows that did get into batches. With a rate limit the rows go in slices, each
        when the limit lets it pass, and between slices nothing is held that others wait for.
        """
        tally, topic, columns, deadline = append.tally, append.topic, append.columns, append.deadline
        completion_for, row_numbers = append.completion_for, append.row_numbers
        most_rows, most_bytes = max(MAX_ROWS, ROWS_PER_PARTITION * count), None
        limit = None if append.check_wait is None else self._rate_limit
        if limit is not None:
            most_rows, most_bytes = min(most_rows, limit.max_records), limit.max_bytes
        buffered = 0
        try:
            for start, stop in parts(sizes, most_rows, most_bytes):
                if limit is not None:
                    _pass_limit(append, limit, stop - start, int(sizes[start:stop].sum()))
                tally.raise_error()
                part = columns.slice(start, stop - start)
                long_from = STAY_CHUNKS * self._pool.chunk_size
                rows = GroupedRows.of(topic, part, sizes[start:stop], partitions[start:stop], count, long_from)
                until = time.monotonic() + self._max_block_s if deadline is None else deadline
                attach = None if completion_for is None else partial(_attach, rows, start, completion_for)
                numbered = None if row_numbers is None else AppendedRows.of(row_numbers, start, rows.order)
                with tally.appending:
                    while buffered < stop:
                        buffered = start + self._append_from(buffered - start, tally, rows, until, attach, numbered)
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
        numbered: AppendedRows | None,
    ) -> int:
        """Runs one round: appends as many rows from `start` on as half of the memory holds. Returns the next row."""
        claimed: list[OpenBatch] = []
        batches: list[OpenBatch] = []
        try:
            plan, memory = self._plan_with_memory(start, tally, rows, deadline, claimed)
            batches = self._batches(tally, rows, plan)
            encoding = _encoding(rows, plan, batches)
            encoded = encode_pieces(rows.columns, *encoding[:3])
            self._add(plan, batches, memory, encoding, encoded, attach)
            if numbered is not None:
                pieces = encoding.pieces
                note_rows(batches, pieces.offset_deltas.tolist(), pieces.counts.tolist(), plan.starts, numbered)
            with self._accumulator.lock:
                wake = self._publish(tally, plan, batches)
                aborted = self._accumulator.aborted
            if wake:
                self._wakeup()
            self._pool.deallocate(memory)
        except BaseException as error:  # an interrupt may have left half a record, so that none of these batches may be sent
            self._lifecycle.broken_by(error)
            _fail(batches or claimed, self._lifecycle.failure)
            raise
        if aborted:
            closed = UsageError(f"topic {rows.topic}: the producer was closed or failed during the append", topic=rows.topic)
            _fail(batches, closed)
            raise closed
        return plan.stop

    def _plan_with_memory(
        self, start: int, tally: Tally, rows: GroupedRows, deadline: float, claimed: list[OpenBatch]
    ) -> tuple[Plan, list[Chunk]]:
        """Assigns rows to batches and claims the open ones for writing. Returns the memory for all of them, too."""
        memory: list[Chunk] = []
        patient, begun = True, time.monotonic()
        while True:
            with self._accumulator.lock:
                free = self._pool.free_chunks + len(memory)
                # After a wait only the awaited memory is used: requesting more could wait forever.
                few = min(max(free, self._kept_from_blocks // 2), self._max_chunks)
                maximum = len(memory) or (self._max_chunks if patient else few)
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
                    return plan, memory
            # Releases its memory before it waits: two appends that each hold what the other needs would wait forever.
            self._pool.deallocate(memory)
            memory = []
            until = min(deadline, begun + PATIENCE_S) if patient else deadline
            try:
                memory = self._wait_for_memory(plan.chunks, until, begun)
            except BufferExhaustedError:
                if not patient:
                    raise
                patient = False

    def _wait_for_memory(self, n_chunks: int, until: float, begun: float) -> list[Chunk]:
        accumulator = self._accumulator
        with accumulator.lock:
            accumulator.memory_waiters += 1
        try:
            self._wakeup()
            return self._pool.allocate(n_chunks, until, begun)
        finally:
            with accumulator.lock:
                accumulator.memory_waiters -= 1

    def _may_stay(self, rows: GroupedRows, start: int, free_chunks: int) -> bool:
        needed = (rows.bytes_before(-1) - rows.bytes_before(start)) // self._pool.chunk_size + 1
        enough = free_chunks - needed >= self._kept_from_blocks
        return rows.long_runs and enough and self._accumulator.oldest_age_ms(monotonic_ms()) <= STUCK_MS

    def _batches(self, tally: Tally, rows: GroupedRows, plan: Plan) -> list[OpenBatch]:
        created_ms = monotonic_ms()
        return [
            batch or OpenBatch(queue, tally, created_ms, rows.timestamp(start))
            for queue, batch, start in zip(plan.queues, plan.batches, plan.starts, strict=True)
        ]

    def _add(
        self,
        plan: Plan,
        batches: list[OpenBatch],
        memory: list[Chunk],
        encoding: _Encoding,
        encoded: EncodedPieces,
        attach: Callable[[OpenBatch, int, int], None] | None,
    ) -> None:
        pieces, first = encoded.pieces, plan.starts[0]
        if plan.stay:
            self._share(pieces, batches, memory)
        else:
            for batch, piece in zip(batches, pieces, strict=True):
                batch.memory.copy(piece, memory)
        told = zip(batches, pieces, encoding.pieces.counts.tolist(), encoding.max_timestamps, encoded.largest, strict=True)
        for batch, piece, count, max_timestamp, largest_record in told:
            batch.added(len(piece), count, max_timestamp, largest_record)
            if attach is not None:
                attach(batch, first, first + count)
                first += count

    def _share(self, pieces: list[memoryview], batches: list[OpenBatch], memory: list[Chunk]) -> None:
        """Shares the encoded block among the batches; it replaces as many chunks."""
        block = SharedChunks()
        for batch, piece in zip(batches, pieces, strict=True):
            batch.memory.share(piece, block)
        needed = self._pool.chunks_for(sum(map(len, pieces)))
        block.lend(memory[-needed:])
        del memory[-needed:]

    def _publish(self, tally: Tally, plan: Plan, batches: list[OpenBatch]) -> bool:
        """Publishes what was written, with the accumulator's lock held. Returns whether the sender has something to do."""
        accumulator = self._accumulator
        wake = False
        for before, batch, is_full in zip(plan.batches, batches, plan.full, strict=True):
            if before is not None:
                batch.writing = False
                if is_full and batch.queue.open is batch:
                    wake = True
                    accumulator.close_open(batch.queue)
            elif not accumulator.aborted:
                wake = accumulator.add(batch, full=is_full) or wake
        return accumulator.undefer(tally) or wake


def parts(sizes: Sizes, max_rows: int, max_bytes: int | None = None) -> Iterator[tuple[int, int]]:
    """Yields the first and last row of parts with at most `max_rows` rows and a byte limit, except for a single larger row."""
    size = repeated_number(sizes)
    total = int(sizes.sum()) if size is None else size * len(sizes)
    usual = MAX_BYTES if total <= LARGE_ROW * len(sizes) else MAX_BYTES_OF_LARGE_ROWS
    max_bytes = usual if max_bytes is None else min(usual, max_bytes)
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


def _encoding(rows: GroupedRows, plan: Plan, batches: list[OpenBatch]) -> _Encoding:
    """Returns how the rows of a plan are encoded: all at once, piece after piece."""
    first, last = plan.starts[0], plan.stop
    bounds = np.array([*plan.starts, last]) - first
    starts, counts = bounds[:-1], bounds[1:] - bounds[:-1]
    bases, delays, timestamp_deltas = [batch.first_timestamp for batch in batches], None, None
    if rows.timestamps is None:
        now = rows.now
        max_timestamps = [now] * len(batches)
        if min(bases) != now or max(bases) != now:
            delays = [now - base for base in bases]
    else:
        timestamps = rows.timestamps[first:last]
        max_timestamps = np.maximum.reduceat(timestamps, starts).tolist()
        timestamp_deltas = timestamps - np.array(bases).repeat(counts)
    whole = rows.order is None and last - first == rows.columns.num_records
    order = None if whole else np.arange(first, last) if rows.order is None else rows.order[first:last]
    firsts = np.array([batch.record_count for batch in batches])
    return _Encoding(order, Pieces(starts, counts, firsts, delays), timestamp_deltas, max_timestamps)


def _pass_limit(append: Append, limit: RateLimit, records: int, size: int) -> None:
    if append.deadline == NO_WAIT:
        limit.take(records, size)  # later appends wait for it
    elif append.check_wait is not None:
        append.tally.rate_limited(limit.wait(append.topic, records, size, append.check_wait))


def _attach(rows: GroupedRows, offset: int, completion_for: CompletionFactory, batch: OpenBatch, start: int, stop: int) -> None:
    """Attaches rows `start` to `stop`, in partition order, which are the last rows added to the batch."""
    places = range(start, stop) if rows.order is None else rows.order[start:stop].tolist()
    thunk = completion_for([place + offset for place in places] if offset else places)
    batch.attach(thunk, batch.record_count - (stop - start))


def _fail(batches: list[OpenBatch], error: KafkaSinkError | None) -> None:
    """Fails batches that the sender thread has left to the append that writes to them (Delivery.fail_all)."""
    for batch in batches:
        if error is not None:
            batch.failed(error)
