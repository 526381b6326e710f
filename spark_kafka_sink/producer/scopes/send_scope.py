"""A share of a producer for one task, with errors and counts of its own."""

from __future__ import annotations

import time
from functools import partial
from types import TracebackType
from typing import Self

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.identity.identity import Identity
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.records.columns import RecordColumns


class SendScope:
    """A share of a producer for one task: what it appends, its first error, its counts. Batches are never shared with others.

    Use it in a `with`: leaving it flushes; leaving on an exception discards what was not sent. `Producer.scope()` makes one.

    Threads: those of its task append, flush and discard. What the sender's thread tells is in the `tally`.
    """

    is_transaction = False

    def __init__(
        self,
        lifecycle: Lifecycle,
        columns: ColumnAppender,
        accumulator: RecordAccumulator,
        identity: Identity,
        metrics: SenderMetrics,
    ) -> None:
        self.tally = Tally()
        self._lifecycle = lifecycle
        self._columns = columns
        self._accumulator = accumulator
        self._identity = identity
        self._metrics = metrics
        self._closed = False

    def append(self, topic: str, columns: RecordColumns) -> None:
        """Take records of one topic. They are copied: the columns may go.

        Waits at most max.block.ms for the topic's metadata and at most as long for memory. Raises SchemaError for a column,
        RecordError or SerializationError for a row, with nothing of these columns sent; MetadataTimeoutError or BrokerError for
        the topic; BufferExhaustedError for memory, which may come when some rows have been taken; DeliveryError when something
        that this scope sent before has failed meanwhile; UsageError when the scope or the producer is closed.

        In a transaction RecordError, what is about the topic and what is about memory let it only be aborted, and so does
        anything that is raised when some rows have been taken.
        """
        self.tally.raise_error()
        if self.discarded or self._closed:
            raise UsageError(f"append to a send scope that was {'discarded' if self.discarded else 'closed'}")
        self._lifecycle.check_process()
        self._identity.check_may_send(in_own_scope=self.is_transaction)
        try:
            self._columns.append(self.tally, topic, columns)
        except BaseException as error:
            self._identity.append_failed(error)
            raise

    def rows_per_append(self, topic: str) -> int:
        """Returns from how many rows on an append to this topic costs little a row: 40 a partition; 0: the topic is not known."""
        return self._columns.rows_per_append(topic)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is waiting and return once all of it is acked. DeliveryError at the first that failed.

        timeout_s: in seconds; FlushTimeoutError after it. None: delivery.timeout.ms is the bound, as no batch stays unfinished
        longer than that.
        """
        if not self.tally.unfinished:
            self.tally.raise_error()
            return
        self._lifecycle.check_alive()
        self._lifecycle.check_may_wait()
        self._accumulator.flush(self.tally)
        self._lifecycle.wake_sender()
        begun_ns = time.monotonic_ns()
        try:
            self.tally.wait_for_acks(timeout_s, self._lifecycle.check_alive, self._lifecycle.outages)
        finally:
            self._metrics.flushed(time.monotonic_ns() - begun_ns)

    def raise_error(self) -> None:
        """DeliveryError if something that this scope sent has failed."""
        self.tally.raise_error()

    def report(self) -> DeliveryReport:
        """A copy of the counts as they are now."""
        return self.tally.report()

    @property
    def discarded(self) -> bool:
        """Whether what was not sent has been dropped."""
        return self.tally.discarded

    def discard(self) -> None:
        """Drop what was not sent and report nothing more. Batches in flight go on retrying, for nobody."""
        if self.discarded:
            return
        self.tally.discarded = True
        if not self._lifecycle.is_forked:  # a fork may have copied a lock that a thread of the parent held
            error = UsageError("the records were discarded with their send scope before they were sent")
            self._accumulator.discard(self.tally, error, partial(self._identity.missed, error))

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
            self._lifecycle.scope_closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
        self.close()
