"""From single records to columns: what was gathered is appended when there is enough of it, or when it has lingered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import TIMEOUT_MAX, Lock
from typing import Any, Protocol

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import (
    DeadlineError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    KafkaSinkError,
    RecordError,
    UsageError,
)
from spark_kafka_sink.producer.accumulator.appender import ThunkOf
from spark_kafka_sink.producer.accumulator.produce_result import ProduceResult
from spark_kafka_sink.producer.accumulator.ready_queues import FOREVER_MS
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.single_records.record_future import RecordThunk
from spark_kafka_sink.producer.single_records.record_gatherer import Gathered, RecordGatherer
from spark_kafka_sink.producer.single_records.record_scope import RecordScope, RecordScopeOwner
from spark_kafka_sink.records.columns import RecordColumns

# When the sender's thread looks again for memory, if no answer comes before.
RETRY_MS = 100

# Rows that are in no batch, and why.
Late = tuple[Gathered, DeadlineError]


class GatheredRecordsOwner(RecordScopeOwner, Protocol):
    """What it needs of its producer."""

    def on_sender_thread(self) -> bool: ...

    def append_gathered(
        self, scope: RecordScope, topic: str, columns: RecordColumns, deadline: float, thunk_of: ThunkOf
    ) -> None: ...


class GatheredRecords:
    """Records of all topics that are not in batches yet.

    When there are enough of a topic they are appended in the thread that added the last one; when the first has waited for
    linger.ms, in the sender's thread, which never waits for memory. Any thread may add and flush. `_lock` guards the making of
    gatherers and `_closed_by`; the rest is each gatherer's own.
    """

    def __init__(
        self,
        owner: GatheredRecordsOwner,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        wakeup: Callable[[], None],
        metrics: SenderMetrics,
    ) -> None:
        self._owner = owner
        self._metrics = metrics
        self._accumulator = accumulator
        self._wakeup = wakeup
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._max_block_s = config.max_block_ms / 1000
        self._lock = Lock()
        self._gatherers: dict[str, RecordGatherer] = {}
        self._closed_by: KafkaSinkError | None = None

    def gatherer(self, topic: str) -> RecordGatherer:
        return self._gatherers.get(topic) or self._new_gatherer(topic)

    def added(self, gatherer: RecordGatherer, *, first: bool, full: bool) -> None:
        """A record was added: the first that waits there, or the last that there is room for. Waits at most max.block.ms."""
        if full and not self._owner.on_sender_thread():
            self._drain(gatherer, time.monotonic() + self._max_block_s)
        elif first:
            self._wakeup()

    def _new_gatherer(self, topic: Any) -> RecordGatherer:
        if not isinstance(topic, str):
            raise RecordError(f"topic is {topic!r}, must be a str")
        with self._lock:
            if self._closed_by is not None:
                raise self._closed_by
            if topic not in self._gatherers:
                self._gatherers[topic] = RecordGatherer(RecordScope(self._owner, topic))
            return self._gatherers[topic]

    # From rows to batches

    def _drain(self, gatherer: RecordGatherer, deadline: float) -> None:
        """Append what was gathered, in the caller's thread. If another thread does so until the deadline it is left to that."""
        if not gatherer.draining.acquire(timeout=_left(deadline)):
            return
        try:
            late = self._append(gatherer, gatherer.take(), deadline)
            if late is not None:
                self._fail(gatherer, *late)
        finally:
            gatherer.draining.release()
        if gatherer.gathered:  # the sender's thread may have found this one draining
            self._wakeup()

    def _append(self, gatherer: RecordGatherer, gathered: Gathered, deadline: float) -> Late | None:
        """What is wrong with a row fails it; returned are those that there was no memory for, or no metadata."""
        if not gathered:
            return None
        try:
            self._append_or_raise(gatherer, gathered, deadline)
        except DeadlineError as error:
            return gathered.unassigned(), error
        except RecordError as error:
            return self._one_by_one(gatherer, gathered.unassigned(), deadline, error)
        except KafkaSinkError as error:
            self._fail(gatherer, gathered.unassigned(), error)
        except BaseException as error:
            text = f"topic {gatherer.scope.topic}: the append ended with {type(error).__name__}: {error}; it may have been sent"
            self._fail(gatherer, gathered.unassigned(), KafkaSinkError(text, topic=gatherer.scope.topic))
            if not isinstance(error, Exception):
                raise
        return None

    def _append_or_raise(self, gatherer: RecordGatherer, gathered: Gathered, deadline: float) -> None:
        futures = gathered.futures

        def thunk_of(rows: Sequence[int]) -> RecordThunk:
            return RecordThunk([futures[row] for row in rows], callbacks=gathered.callbacks)

        self._owner.append_gathered(gatherer.scope, gatherer.scope.topic, gathered.columns(), deadline, thunk_of)

    def _one_by_one(self, gatherer: RecordGatherer, rest: Gathered, deadline: float, error: RecordError) -> Late | None:
        """The partitioner refused one of the rows: the others go on without it."""
        if len(rest) == 1:
            self._fail(gatherer, rest, error)
            return None
        for at in range(len(rest)):
            late = self._append(gatherer, rest.slice(at, at + 1), deadline)
            if late is not None:
                return rest.slice(at, len(rest)), late[1]
        return None

    def _fail(self, gatherer: RecordGatherer, gathered: Gathered, error: KafkaSinkError) -> None:
        self._metrics.append_refused(gatherer.scope.topic, len(gathered), error)
        gathered.fail(error)
        gatherer.scope.told()

    # The sender's thread

    def drain_due(self, now_ms: int) -> int:
        """Append what has lingered, as far as there is memory; in how many ms there will be more."""
        next_ms = FOREVER_MS
        for gatherer in list(self._gatherers.values()):
            gathered = gatherer.gathered
            if gathered:
                left = 0 if self._accumulator.closed else gathered.since_ms + self._linger_ms - now_ms
                next_ms = min(next_ms, left if left > 0 else self._try_drain(gatherer, now_ms))
        return next_ms

    def has_rows(self) -> bool:
        return any(gatherer.gathered for gatherer in list(self._gatherers.values()))

    def _try_drain(self, gatherer: RecordGatherer, now_ms: int) -> int:
        if not gatherer.draining.acquire(blocking=False):
            return FOREVER_MS  # who holds it wakes this thread at the end
        try:
            late = self._append(gatherer, gatherer.take(), 0.0)
            if late is None:
                self._accumulator.flush(gatherer.scope)  # it has lingered already
                return FOREVER_MS
            self._again_or_expired(gatherer, *late, now_ms)
        finally:
            gatherer.draining.release()
        self._accumulator.flush(None)  # what holds the memory had better go
        return RETRY_MS

    def _again_or_expired(self, gatherer: RecordGatherer, late: Gathered, cause: KafkaSinkError, now_ms: int) -> None:
        age_ms = now_ms - late.since_ms
        if age_ms < self._delivery_timeout_ms:
            gatherer.put_back(late)
            return
        text = f"topic {gatherer.scope.topic}: the record was never sent within delivery.timeout.ms ({age_ms} ms passed): {cause}"
        self._fail(gatherer, late, DeliveryTimeoutError(text, topic=gatherer.scope.topic))

    # Flush and close

    def flush(self, timeout_s: float | None) -> None:
        """Return when what was sent before is acked or failed, which its futures tell. FlushTimeoutError after `timeout_s`."""
        begun = time.monotonic()
        deadline = begun + (TIMEOUT_MAX if timeout_s is None else timeout_s)
        gatherers = list(self._gatherers.values())
        for gatherer in gatherers:
            self._drain_for_flush(gatherer, deadline, timeout_s)
        results = {gatherer.scope: self._accumulator.flush(gatherer.scope) for gatherer in gatherers}
        self._wakeup()
        for scope, unfinished in results.items():
            scope.wait_until(partial(_all_done, unfinished), _left(deadline), partial(_flush_timeout, unfinished, timeout_s))

    def _drain_for_flush(self, gatherer: RecordGatherer, deadline: float, timeout_s: float | None) -> None:
        """Append what was gathered, however long memory takes; at the deadline it is left to the sender's thread."""
        while True:
            if not gatherer.draining.acquire(timeout=_left(deadline)):
                raise _flush_timeout([], timeout_s)
            try:
                late = self._append(gatherer, gatherer.take(), min(deadline, time.monotonic() + self._max_block_s))
                if late is None:
                    return
                gatherer.put_back(late[0])
            finally:
                gatherer.draining.release()
            if _left(deadline) <= 0:
                raise _flush_timeout([], timeout_s)

    def close(self, deadline: float) -> None:
        """No more records; those that are here are appended, or fail at the deadline."""
        self._close_gatherers(UsageError("the producer is closed"))
        for gatherer in self._gatherers.values():
            self._drain(gatherer, deadline)
            self._fail_rest(gatherer)

    def fail(self, error: KafkaSinkError) -> None:
        """The sender's thread is at its end: what is in no batch never will be."""
        self._close_gatherers(error)
        for gatherer in self._gatherers.values():
            self._fail_rest(gatherer)

    def _close_gatherers(self, error: KafkaSinkError) -> None:
        with self._lock:
            self._closed_by = self._closed_by or error
            for gatherer in self._gatherers.values():
                gatherer.close(self._closed_by)

    def _fail_rest(self, gatherer: RecordGatherer) -> None:
        rest = gatherer.take()
        if rest:
            assert self._closed_by is not None
            self._fail(gatherer, rest, self._closed_by)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0)


def _all_done(results: list[ProduceResult]) -> bool:
    """Forgets those that are."""
    while results and results[-1].done:
        results.pop()
    return not results


def _flush_timeout(unfinished: list[ProduceResult], timeout_s: float | None, _waited_s: float = 0.0) -> FlushTimeoutError:
    left = f"{len(unfinished)} batches not acked" if unfinished else "records found no memory"
    return FlushTimeoutError(f"flush: {left} within {timeout_s} s; they may still be delivered, their futures will tell")
