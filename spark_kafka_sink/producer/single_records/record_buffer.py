"""Makes columns of single records: what was buffered is appended when there is enough of it, or when it has lingered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import TIMEOUT_MAX, Lock

from spark_kafka_sink.config import ProducerConfig
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
from spark_kafka_sink.producer.accumulator.produce_result import ProduceResult
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.identity.identity import Identity
from spark_kafka_sink.producer.lifecycle import FOREVER_MS, NO_WAIT, Lifecycle, in_callback
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.single_records.record_future import RecordThunk, TopicWaiter
from spark_kafka_sink.producer.single_records.topic_buffer import BufferedRows, BufferLimits, TopicBuffer

# When the sender's thread looks again for memory, if no answer comes before.
RETRY_MS = 100
# How long a flush waits for memory before it looks whether its records have expired, if max.block.ms is less. With 0 it went
# round and round, and took the time of the thread that frees memory: records expired although their broker was well.
MIN_ROUND_S = 1.0

# Rows that are in no batch, and why.
Late = tuple[BufferedRows, DeadlineError]


class RecordBuffer:
    """Records of all topics that are not in batches yet.

    When there are enough of a topic they are appended in the thread that added the last one; when the first has waited for
    linger.ms, in the sender's thread, which never waits for memory. Any thread may add and flush. `_lock` guards the making of
    buffers and `_closed_by`; the rest is each buffer's own. `_waiting` has those that the sender's thread must look at: who
    adds a first row puts its buffer in after that, and the sender's thread takes it out before it finds it idle.
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
        """The topic's own, or a new one, which is nobody else's before it is kept (`keep`)."""
        if not isinstance(topic, str):
            raise RecordError(f"topic is {topic!r}, must be a str")
        return self._buffers.get(topic) or TopicBuffer(TopicWaiter(self._lifecycle, topic), self._limits)

    def keep(self, buffer: TopicBuffer) -> TopicBuffer:
        """The topic's own from now on and for good: this one, unless another thread was faster."""
        topic = buffer.waiter.topic
        with self._lock:
            if topic not in self._buffers:
                if self._closed_by is not None:
                    raise self._closed_by.with_traceback(None)
                self._buffers[topic] = buffer
                self._limits.share(len(self._buffers))
            return self._buffers[topic]

    def added(self, buffer: TopicBuffer, *, first: bool, full: bool) -> None:
        """A record was added: the first that waits there, or the last that there is room for. Waits at most max.block.ms."""
        if first:
            self._waiting[buffer] = None
        if full and not in_callback():
            self._drain(buffer, time.monotonic() + self._max_block_ms / 1000)
        else:
            self._wakeup()

    def interrupted(self, buffer: TopicBuffer) -> None:
        """A record was added, or was not."""
        self._waiting[buffer] = None
        self._wakeup()

    # From rows to batches

    def _drain(self, buffer: TopicBuffer, deadline: float) -> None:
        """Append what was buffered, in the caller's thread. If another thread does so until the deadline it is left to that."""
        if not buffer.draining.acquire(timeout=_left(deadline)):
            return
        try:
            if buffer.is_full():  # else another thread was faster
                late = self._append(buffer, buffer.take(), deadline)
                if late is not None:
                    self._fail_for_good(buffer, *late)
                buffer.settled()
        finally:
            buffer.draining.release()
            self._wake_for_rest(buffer)

    def _wake_for_rest(self, buffer: TopicBuffer) -> None:
        """The sender's thread may have found it draining, and waits for the rest, or for the end of it."""
        if buffer.rows or buffer.taken is not None or self._accumulator.closed or self._identity.awaits_appends:
            self._wakeup()

    def _append(self, buffer: TopicBuffer, rows: BufferedRows, deadline: float) -> Late | None:
        """Appends rows. Fails one that is wrong; returns those that there was no memory for, or no metadata."""
        if not rows:
            return None
        waiter, futures = buffer.waiter, rows.futures

        def completion_for(indexes: Sequence[int]) -> RecordThunk:
            return RecordThunk([futures[index] for index in indexes], callbacks=rows.callbacks)

        try:
            self._columns.append_serialized(
                waiter.tally,
                waiter.topic,
                rows.columns(),
                deadline=deadline,
                completion_for=completion_for,
                on_partitioned=rows.keep_partitions,
            )
        except DeadlineError as error:
            return rows.pending(), error
        except RecordError as error:
            return self._append_others(buffer, rows.pending(), deadline, error)
        except KafkaSinkError as error:
            self._fail_for_good(buffer, rows.pending(), error)
        except BaseException as error:
            text = f"topic {waiter.topic}: the append ended with {type(error).__name__}: {error}; it may have been sent"
            self._fail_for_good(buffer, rows.pending(), KafkaSinkError(text, topic=waiter.topic))
            if not isinstance(error, Exception):
                raise
        return None

    def _append_others(self, buffer: TopicBuffer, rows: BufferedRows, deadline: float, error: RecordError) -> Late | None:
        """One of the rows was refused, by the partitioner, before any was in a batch: the others go on without it."""
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
        """They will not be sent: a transaction hears of it while they still keep it from ending."""
        if rows:
            self._identity.missed(error)
        self._fail(buffer, rows, error)

    def _fail(self, buffer: TopicBuffer, rows: BufferedRows, error: KafkaSinkError) -> None:
        if not rows:
            return
        self._metrics.append_refused(buffer.waiter.topic, len(rows), error)
        try:
            rows.fail(error)
        finally:
            buffer.waiter.told()

    def _put_back(self, buffer: TopicBuffer, late: BufferedRows, cause: DeadlineError) -> None:
        """Puts rows back for another try, unless it is too late for one."""
        error = self._too_late(buffer, late, cause) or buffer.put_back(late)
        if error is not None:
            self._fail_for_good(buffer, late, error)
            buffer.settled()

    def _too_late(self, buffer: TopicBuffer, late: BufferedRows, cause: DeadlineError) -> DeadlineError | None:
        topic, age_ms = buffer.waiter.topic, monotonic_ms() - late.since_ms
        if buffer.known_in is None and isinstance(cause, MetadataTimeoutError):  # sent in a callback, which could not wait for it
            if age_ms < self._max_block_ms:
                return None
            return MetadataTimeoutError(f"topic {topic}: not known within max.block.ms: {cause.message}", **cause.facts)
        if age_ms < self._delivery_timeout_ms:
            return None
        text = f"topic {topic}: the record was never sent within delivery.timeout.ms ({age_ms} ms passed): {cause.message}"
        return DeliveryTimeoutError(text, topic=topic)

    # The sender's thread

    def drain_due(self, now_ms: int) -> int:
        """Append what has lingered, as far as there is memory; in how many ms there will be more."""
        next_ms = FOREVER_MS
        lingered: set[Tally] = set()
        for buffer in list(self._waiting):
            left = self._until_due(buffer, now_ms)
            if left <= 0:
                left, late = self._try_drain(buffer, lingered)
                if isinstance(late, BufferExhaustedError):
                    self._accumulator.flush(None)  # what holds the memory had better go
                    return RETRY_MS
            next_ms = min(next_ms, left)
        if lingered:
            self._accumulator.flush_all(lingered)
        return next_ms

    def has_rows(self) -> bool:
        """Whether any buffer has rows: who adds a first row may not have said yet that it waits, and another may be behind it."""
        return not all(buffer.is_idle() for buffer in list(self._buffers.values()))

    def _until_due(self, buffer: TopicBuffer, now_ms: int) -> int:
        if buffer.is_idle():
            del self._waiting[buffer]
            if buffer.is_idle():
                return FOREVER_MS
            self._waiting[buffer] = None  # a row came before it was out
        if self._accumulator.closed or buffer.is_full():
            return 0
        return buffer.rows.since_ms + self._linger_ms - now_ms

    def _try_drain(self, buffer: TopicBuffer, lingered: set[Tally]) -> tuple[int, DeadlineError | None]:
        """Returns in how many ms to look again, and what was missing."""
        if not buffer.draining.acquire(blocking=False):
            return FOREVER_MS, None  # who holds it wakes this thread at the end
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
        """Return when what was sent before is acked or failed, which its futures tell. FlushTimeoutError after `timeout_s`."""
        deadline = time.monotonic() + (TIMEOUT_MAX if timeout_s is None else timeout_s)
        buffers = list(self._buffers.values())
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
        """Append what was buffered, however long memory takes; at the deadline it is left to the sender's thread."""
        mine: BufferedRows | None = None  # not what others add meanwhile: that could go on for ever
        while True:
            if not buffer.draining.acquire(timeout=_left(deadline)):
                raise _flush_timeout("records are in no batch, which another thread waits for", timeout_s)
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
        """The number of records that are in no batch."""
        return sum(buffer.unsent() for buffer in list(self._waiting))

    def close(self) -> None:
        """No more records; those that are here are appended in the sender's thread."""
        self._close(UsageError("the producer is closed"))
        for buffer in self._buffers.values():
            if not buffer.is_idle():  # who added its first row may not have come to say so
                self._waiting[buffer] = None

    def drop(self, error: KafkaSinkError) -> None:
        """Fail what is in no batch; others may come. What a thread is just appending is left to that."""
        for buffer in list(self._waiting):
            if buffer.draining.acquire(blocking=False):
                try:
                    self._fail(buffer, buffer.take(), error)
                    buffer.settled()
                finally:
                    buffer.draining.release()

    def fail(self, error: KafkaSinkError) -> None:
        """The sender's thread is at its end: what is in no batch never will be."""
        self._close(error)
        for buffer in self._buffers.values():
            self._fail(buffer, buffer.end(error), error)
            if buffer.draining.acquire(blocking=False):  # else who drains it finds that there is no memory any more
                try:
                    self._fail(buffer, buffer.take(), error)
                    buffer.settled()
                finally:
                    buffer.draining.release()

    def _close(self, error: KafkaSinkError) -> None:
        with self._lock:
            self._closed_by = self._closed_by or error
            for buffer in self._buffers.values():
                buffer.close(self._closed_by)


def _left(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0), TIMEOUT_MAX)


def _all_done(results: list[ProduceResult]) -> bool:
    """Forgets those that are."""
    while results and results[-1].done:
        results.pop()
    return not results


def _late_acks(
    unfinished: list[ProduceResult], timeout_s: float | None, outages: Callable[[], str], _waited_s: float
) -> FlushTimeoutError:
    why = outages()
    return _flush_timeout(f"{len(unfinished)} batches are not acked{why and f' ({why})'}", timeout_s)


def _flush_timeout(left: str, timeout_s: float | None) -> FlushTimeoutError:
    return FlushTimeoutError(f"flush: after {timeout_s} s {left}; they may still be delivered, their futures will tell")
