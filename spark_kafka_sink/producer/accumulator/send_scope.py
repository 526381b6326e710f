"""What one task has sent through a producer that it shares: its records, its errors, its counts, and nobody else's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from threading import Condition, Lock
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from spark_kafka_sink.errors import DeliveryError, FlushTimeoutError, KafkaSinkError, UsageError
from spark_kafka_sink.producer.partition_reports import NO_OFFSET, PartitionReport
from spark_kafka_sink.producer.report import LATENCY_BUCKETS, DeliveryReport, latency_bucket

if TYPE_CHECKING:
    from spark_kafka_sink.producer.accumulator.partition_queue import PartitionQueue
    from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
    from spark_kafka_sink.records.columns import RecordColumns


class ScopeOwner(Protocol):
    """What a scope needs of its producer."""

    def append(self, scope: SendScope, topic: str, columns: RecordColumns) -> None: ...

    def rows_per_append(self, topic: str) -> int: ...

    def flush_scope(self, scope: SendScope) -> None: ...

    def flushed(self, waited_ns: int) -> None: ...

    def discard_scope(self, scope: SendScope) -> None: ...

    def check_alive(self) -> None: ...


class SendScope:
    """A share of a producer for one task: what it appends, its first error, its counts. Batches are never shared with others.

    Use it in a `with`: leaving it flushes; leaving on an exception discards what was not sent. `Producer.scope()` makes one.

    Its owner's threads append, flush and discard; `appending` lets one append run at a time. The sender's thread tells the
    outcomes. `_changed` guards the counts and the first error. `deferred` belongs to the accumulator's lock.
    """

    def __init__(self, owner: ScopeOwner, on_close: Callable[[SendScope], None]) -> None:
        self._owner = owner
        self._on_close = on_close
        self._changed = Condition(Lock())
        self._report = DeliveryReport()
        self._batches = 0  # added and not finished
        self._failed_records = 0
        self._error: KafkaSinkError | None = None
        self.appending = Lock()
        self.has_timestamps = False  # some of its rows came with timestamps of their own
        self.discarded = False
        self._closed = False
        self.deferred: list[PartitionQueue] = []

    # The task's side

    def append(self, topic: str, columns: RecordColumns) -> None:
        """Take records of one topic. They are copied: the columns may go.

        Waits at most max.block.ms for the topic's metadata and at most as long for memory. Raises SchemaError for a column,
        RecordError or SerializationError for a row, with nothing of these columns sent; MetadataTimeoutError or BrokerError for
        the topic; BufferExhaustedError for memory, which may come when some rows have been taken; DeliveryError when something
        that this scope sent before has failed meanwhile; UsageError when the scope or the producer is closed.

        In a transaction RecordError, what is about the topic and what is about memory let it only be aborted, and so does
        anything that is raised when some rows have been taken.
        """
        self.raise_error()
        if self.discarded or self._closed:
            raise UsageError(f"append to a send scope that was {'discarded' if self.discarded else 'closed'}")
        self._owner.append(self, topic, columns)

    def rows_per_append(self, topic: str) -> int:
        """From how many rows on an append to this topic costs little a row: 40 a partition. 0 while the topic is not known."""
        return self._owner.rows_per_append(topic)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is waiting and return once all of it is acked. DeliveryError at the first that failed.

        timeout_s: in seconds; FlushTimeoutError after it. None: delivery.timeout.ms is the bound, as no batch stays unfinished
        longer than that.
        """
        if not self._unfinished():
            self.raise_error()
            return
        self._owner.flush_scope(self)
        begun_ns = time.monotonic_ns()
        try:
            self._wait_for_acks(timeout_s)
        finally:
            self._owner.flushed(time.monotonic_ns() - begun_ns)

    def _wait_for_acks(self, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while self._batches and self._error is None:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise FlushTimeoutError(f"flush: {self._batches} batches not acked within {timeout_s} s")
                # A bounded wait, so that a sender thread that died is noticed.
                if not self._changed.wait(1.0 if remaining is None else min(remaining, 1.0)):
                    self._owner.check_alive()
        self.raise_error()

    def report(self) -> DeliveryReport:
        """A copy of the counts as they are now."""
        with self._changed:
            return deepcopy(self._report)

    def _unfinished(self) -> int:
        with self._changed:
            return self._batches

    def discard(self) -> None:
        """Drop what was not sent and report nothing more. Batches in flight go on retrying, for nobody."""
        if not self.discarded:
            self.discarded = True
            self._owner.discard_scope(self)

    def close(self) -> None:
        """Flush, and end the scope. Raises what flush raises; what was not sent is discarded then. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self.discarded:
                self.flush()
        except BaseException:
            self.discard()
            raise
        finally:
            self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def raise_error(self) -> None:
        """DeliveryError if something that this scope sent has failed."""
        with self._changed:
            error, failed, acked = self._error, self._failed_records, self._report.records
        if error is not None:
            raise DeliveryError(f"{failed} records failed, {acked} were acked: {error}", failed=failed, acked=acked) from error

    # The accumulator's and the sender's side

    def batches_added(self, count: int) -> None:
        with self._changed:
            self._batches += count

    def request_sent(self) -> None:
        with self._changed:
            self._report.requests += 1

    def batch_refused(self, error_name: str, *, again: bool) -> None:
        with self._changed:
            self._report.errors[error_name] = self._report.errors.get(error_name, 0) + 1
            self._report.retries += again

    def batches_acked(self, acks: Iterable[tuple[SealedBatch, int]], now_ms: int) -> None:
        """Batches that one answer acked, each with its base offset (negative: not known)."""
        with self._changed:
            for batch, base_offset in acks:
                self._count(batch, base_offset, now_ms)
                self._batches -= 1
            self._changed.notify_all()

    def _count(self, batch: SealedBatch, base_offset: int, now_ms: int) -> None:
        queue, report = batch.queue, self._report
        report.records += batch.record_count
        report.bytes += batch.raw_size
        report.compressed_bytes += batch.size
        report.batches += 1
        known = base_offset >= 0
        first, last = (base_offset, base_offset + batch.record_count - 1) if known else (NO_OFFSET, NO_OFFSET)
        partition = PartitionReport(batch.record_count, batch.raw_size, first, last)
        report.partitions.count(queue.topic, queue.partition, partition)
        histogram = report.ack_latency.setdefault(queue.topic, [0] * LATENCY_BUCKETS)
        histogram[latency_bucket(now_ms - batch.first_sent_ms)] += 1

    def batch_failed(self, record_count: int, error: KafkaSinkError) -> None:
        with self._changed:
            self._batches -= 1
            self._fail(record_count, error)

    def records_failed(self, count: int, error: KafkaSinkError) -> None:
        """`count` records of a batch failed with `error`; its others go on."""
        with self._changed:
            self._fail(count, error)

    def _fail(self, count: int, error: KafkaSinkError) -> None:
        self._failed_records += count
        if self._error is None:
            self._error = error
        self._changed.notify_all()
