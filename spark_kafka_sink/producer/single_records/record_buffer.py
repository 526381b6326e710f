"""Collects single records into columns, and appends them when there are enough or when they have lingered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import TIMEOUT_MAX, Lock

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DeadlineError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    KafkaSinkError,
    MetadataTimeoutError,
    RecordError,
    UsageError,
)
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.appender import Append
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS, MAX_WAIT_S, NO_WAIT, Lifecycle, in_callback
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, RecordThunk, TopicWaiter
from spark_kafka_sink.producer.single_records.topic_buffer import BufferedRows, BufferLimits, TopicBuffer

# Interval at which the sender thread checks for memory again if no response arrives before.
RETRY_MS = 100
# How long a flush waits for memory before it checks whether its records have expired, if max.block.ms is less. With 0 it spun and
# starved the thread that frees memory: records expired although their broker was healthy.
MIN_ROUND_S = 1.0

# Rows that are in no batch, and the reason.
Late = tuple[BufferedRows, DeadlineError]


class RecordBuffer:
    """Records of all topics that are not in batches yet.

    When a topic has enough records, the thread that added the last one appends them. When the first has waited for linger.ms, the
    sender thread does, without ever waiting for memory. Any thread may add and flush. `_lock` guards the creation of buffers and
    `_closed_by`; each buffer has its own lock. `_waiting` has the buffers that the sender thread must check: a thread that adds a
    first row inserts the buffer afterwards, and the sender thread removes it before it finds it idle.
    """

    def __init__(
        self,
        config: ProducerConfig,
        lifecycle: Lifecycle,
        columns: ColumnAppender,
        accumulator: RecordAccumulator,
        identity: Identity,
        metrics: SenderMetrics,
    ) -> None:
        self._lifecycle = lifecycle
        self._columns = columns
        self._accumulator = accumulator
        self._identity = identity
        self._metrics = metrics
        self._wakeup = lifecycle.wake_sender
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._max_block_ms = config.max_block_ms
        self._limits = BufferLimits(config.buffer_memory)
        self._lock = Lock()
        self._buffers: dict[str, TopicBuffer] = {}
        self._waiting: dict[TopicBuffer, None] = {}
        self._closed_by: KafkaSinkError | None = None

    def topic_buffer(self, topic: str) -> TopicBuffer:
        """Returns the topic's buffer, or a new one that is private to the caller until it is kept (`keep`)."""
        if not isinstance(topic, str):
            raise RecordError(f"topic is {topic!r}, must be a str")
        return self._buffers.get(topic) or TopicBuffer(TopicWaiter(self._lifecycle, topic), self._limits)

    def keep(self, buffer: TopicBuffer) -> TopicBuffer:
        """Makes this the topic's buffer for good, unless another thread was faster. Returns the topic's buffer."""
        topic = buffer.waiter.topic
        with self._lock:
            if topic not in self._buffers:
                if self._closed_by is not None:
                    raise self._closed_by.with_traceback(None)
                self._buffers[topic] = buffer
                self._limits.share(len(self._buffers))
            return self._buffers[topic]

    def added(self, buffer: TopicBuffer, *, first: bool, full: bool) -> None:
        """Called after a record was added that is the first in the buffer or fills it. Waits at most max.block.ms."""
        if first:
            self._waiting[buffer] = None
        if full and not in_callback():
            self._drain(buffer, time.monotonic() + self._max_block_ms / 1000)
        else:
            self._wakeup()

    # From rows to batches

    def _drain(self, buffer: TopicBuffer, deadline: float) -> None:
        """Appends the buffered rows in the caller's thread. If another thread does so until the deadline, leaves them to it."""
        if not self._acquired(buffer, deadline):
            return
        try:
            if buffer.is_full():  # otherwise another thread was faster
                late = self._append(buffer, buffer.take(), deadline)
                if late is not None:
                    self._fail_for_good(buffer, *late)
                buffer.settled()
        finally:
            buffer.draining.release()
            self._wake_for_rest(buffer)

    def _acquired(self, buffer: TopicBuffer, deadline: float) -> bool:
        """Waits until no other thread drains the buffer. Returns False at the deadline, or if an interrupted thread keeps it."""
        while not buffer.draining.acquire(timeout=min(_left(deadline), MAX_WAIT_S)):
            if not _left(deadline) or self._lifecycle.failure is not None:
                return False
        return True

    def _wake_for_rest(self, buffer: TopicBuffer) -> None:
        """Wakes the sender thread, which may have found the buffer draining and so waits for the rest."""
        if buffer.rows or buffer.taken is not None or self._accumulator.closed or self._identity.is_transactional:
            self._wakeup()

    def _append(self, buffer: TopicBuffer, rows: BufferedRows, deadline: float) -> Late | None:
        """Appends rows. Fails an invalid row; returns the rows for which there was no memory or no metadata."""
        if not rows:
            return None
        waiter, futures = buffer.waiter, rows.futures

        def completion_for(indexes: Sequence[int]) -> RecordThunk:
            return RecordThunk([futures[index] for index in indexes], callbacks=rows.callbacks)

        try:
            self._columns.append_serialized(
                Append(waiter.tally, waiter.topic, rows.columns(), deadline, completion_for, rows.keep_partitions)
            )
        except DeadlineError as error:
            return rows.pending(), error
        except RecordError as error:
            return self._append_others(buffer, rows.pending(), deadline, error)
        except KafkaSinkError as error:
            self._fail_for_good(buffer, rows.pending(), error)
        except Exception as error:
            text = f"topic {waiter.topic}: the append failed with {type(error).__name__}: {error}; it may have been sent"
            self._fail_for_good(buffer, rows.pending(), KafkaSinkError(text, topic=waiter.topic))
        return None

    def _append_others(self, buffer: TopicBuffer, rows: BufferedRows, deadline: float, error: RecordError) -> Late | None:
        """Appends the other rows after the partitioner rejected one, before any was in a batch."""
        if len(rows) == 1:
            self._fail_for_good(buffer, rows, error)
            return None
        middle = len(rows) // 2
        head, tail = rows.slice(0, middle), rows.slice(middle, len(rows))
        late = self._append(buffer, head, deadline)
        if late is None:
            return self._append(buffer, tail, deadline)
        late[0].extend(tail)
        return late

    def _fail_for_good(self, buffer: TopicBuffer, rows: BufferedRows, error: KafkaSinkError) -> None:
        """Fails rows that will not be sent. The transaction learns of it while the rows still keep it from ending."""
        if rows:
            self._identity.missed(error)
        self._fail(buffer, rows.futures, error)

    def _fail(self, buffer: TopicBuffer, futures: list[RecordFuture], error: KafkaSinkError) -> None:
        if not futures:
            return
        self._metrics.append_refused(buffer.waiter.topic, len(futures), error)
        for future in futures:
            future.fail(error)
        buffer.waiter.told()

    def _put_back(self, buffer: TopicBuffer, late: BufferedRows, cause: DeadlineError) -> None:
        """Puts rows back for another try, or fails those that have expired."""
        error = self._too_late(buffer, late, cause) or buffer.put_back(late)
        if error is not None:
            self._fail_for_good(buffer, late, error)
            buffer.settled()

    def _too_late(self, buffer: TopicBuffer, late: BufferedRows, cause: DeadlineError) -> DeadlineError | None:
        topic, age_ms = buffer.waiter.topic, monotonic_ms() - late.since_ms
        # Sent in a callback, which could not wait for the metadata.
        if buffer.known_in is None and isinstance(cause, MetadataTimeoutError):
            if age_ms < self._max_block_ms:
                return None
            return MetadataTimeoutError(
                f"topic {topic}: timed out waiting for metadata (max.block.ms): {cause.message}", **cause.facts
            )
        if age_ms < self._delivery_timeout_ms:
            return None
        text = f"topic {topic}: the record was not sent within delivery.timeout.ms ({age_ms} ms passed): {cause.message}"
        return DeliveryTimeoutError(text, topic=topic)

    # Sender thread

    def drain_due(self, now_ms: int) -> int:
        """Appends rows that have lingered, as far as there is memory. Returns the time until more are due, in ms."""
        if not self._waiting:
            return FOREVER_MS
        next_ms = FOREVER_MS
        lingered: set[Tally] = set()
        for buffer in list(self._waiting):
            left = self._until_due(buffer, now_ms)
            if left <= 0:
                left, late = self._try_drain(buffer, lingered)
                if isinstance(late, BufferExhaustedError):
                    self._accumulator.flush(None)  # sends the batches that hold the memory
                    return RETRY_MS
            next_ms = min(next_ms, left)
        if lingered:
            self._accumulator.flush_all(lingered)
        return next_ms

    def has_rows(self) -> bool:
        """Returns whether any buffer has rows, including rows whose buffer is not in `_waiting` yet."""
        return not all(buffer.is_idle() for buffer in list(self._buffers.values()))

    def _until_due(self, buffer: TopicBuffer, now_ms: int) -> int:
        if buffer.is_idle():
            del self._waiting[buffer]
            if buffer.is_idle():
                return FOREVER_MS
            self._waiting[buffer] = None  # a row was added before the buffer was removed
        if self._accumulator.closed or buffer.is_full():
            return 0
        return buffer.rows.since_ms + self._linger_ms - now_ms

    def _try_drain(self, buffer: TopicBuffer, lingered: set[Tally]) -> tuple[int, DeadlineError | None]:
        """Appends a buffer if possible. Returns the time until the next check in ms, and what was missing."""
        if not buffer.draining.acquire(blocking=False):
            return FOREVER_MS, None  # the holder wakes this thread when it finishes
        try:
            late = self._append(buffer, buffer.take(), NO_WAIT)
            lingered.add(buffer.waiter.tally)
            if late is None:
                buffer.settled()
                return FOREVER_MS, None
            self._put_back(buffer, *late)
            return RETRY_MS, late[1]
        finally:
            buffer.draining.release()

    # Flush and close

    def flush(self, timeout_s: float | None) -> None:
        """Returns once all records sent before are acknowledged or failed. Raises FlushTimeoutError after `timeout_s`."""
        deadline = time.monotonic() + (TIMEOUT_MAX if timeout_s is None else timeout_s)
        buffers = list(self._buffers.values())
        with self._lifecycle.whole():
            for buffer in buffers:
                if not buffer.is_idle():
                    self._drain_for_flush(buffer, deadline, timeout_s)
            waiters = {buffer.waiter.tally: buffer.waiter for buffer in buffers}
            results = self._accumulator.flush_all(waiters.keys())
        self._wakeup()
        for tally, unfinished in results.items():
            waiters[tally].wait_until(
                partial(_all_done, unfinished),
                _left(deadline),
                partial(_late_acks, unfinished, timeout_s, self._lifecycle.outages),
            )

    def _drain_for_flush(self, buffer: TopicBuffer, deadline: float, timeout_s: float | None) -> None:
        """Appends the buffered rows, waiting for memory until the deadline, after which the sender thread takes over."""
        mine: BufferedRows | None = None  # only the rows present now: others may keep adding
        while True:
            if not self._acquired(buffer, deadline):
                self._lifecycle.check_alive()
                raise _flush_timeout("records are in no batch and another thread is appending them", timeout_s)
            try:
                taken = buffer.take()
                mine = mine or taken
                round_s = max(self._max_block_ms / 1000, MIN_ROUND_S)
                late = self._append(buffer, taken, min(deadline, time.monotonic() + round_s))
                if late is None:
                    buffer.settled()
                else:
                    self._put_back(buffer, *late)
            finally:
                buffer.draining.release()
                self._wake_for_rest(buffer)
            if late is None or not mine.pending():
                return
            if _left(deadline) <= 0:
                raise _flush_timeout(f"records are in no batch ({late[1].message})", timeout_s)

    def unsent(self) -> int:
        return sum(buffer.unsent() for buffer in list(self._waiting))

    def close(self) -> None:
        """Rejects further records. The sender thread appends those that are buffered."""
        self._close(UsageError("the producer is closed"))
        for buffer in self._buffers.values():
            if not buffer.is_idle():  # the thread that added its first row may not have inserted it yet
                self._waiting[buffer] = None

    def drop(self, error: KafkaSinkError) -> None:
        """Fails rows that are in no batch, except those being appended right now. More may be added."""
        for buffer in list(self._waiting):
            if buffer.draining.acquire(blocking=False):
                try:
                    self._fail(buffer, buffer.take().futures, error)
                    buffer.settled()
                finally:
                    buffer.draining.release()

    def fail(self, error: KafkaSinkError) -> None:
        """Fails all rows that are in no batch, because the sender thread has ended."""
        self._close(error)
        for buffer in self._buffers.values():
            self._fail(buffer, buffer.end(error), error)

    def _close(self, error: KafkaSinkError) -> None:
        with self._lock:
            self._closed_by = self._closed_by or error
            for buffer in self._buffers.values():
                buffer.close(self._closed_by)


def _left(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0), TIMEOUT_MAX)


def _all_done(results: list[ProduceResult]) -> bool:
    """Removes completed results and returns whether none is left."""
    while results and results[-1].done:
        results.pop()
    return not results


def _late_acks(
    unfinished: list[ProduceResult], timeout_s: float | None, outages: Callable[[], str], _waited_s: float
) -> FlushTimeoutError:
    why = outages()
    return _flush_timeout(
        f"{counted(len(unfinished), 'batch is', 'batches are')} not acknowledged{why and f' ({why})'}", timeout_s
    )


def _flush_timeout(left: str, timeout_s: float | None) -> FlushTimeoutError:
    return FlushTimeoutError(f"flush: timed out after {timeout_s} s; {left}; they may still be delivered: check their futures")
