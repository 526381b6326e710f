"""A share of a producer for one task, with its own errors and counts, and one that is a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.accumulator.appender import Append
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.bad_rows import BadRows, OnBadRows, RowNumbers
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.reports.delivery_report import DeliveryReport

if TYPE_CHECKING:
    from spark_kafka_sink.producer.transactions.transaction_calls import TransactionCalls


class SendScope:
    """A share of a producer for one task, with its own first error and counts. Batches are never shared with other scopes.

    Made by `Producer.scope()`. Use it as a context manager: leaving it flushes; leaving it on an exception discards unsent
    records.

    Threads: the task's threads append, flush and discard. The sender thread reports outcomes.
    """

    is_transaction = False

    def __init__(
        self,
        lifecycle: Lifecycle,
        columns: ColumnAppender,
        accumulator: RecordAccumulator,
        identity: Identity,
        metrics: SenderMetrics,
        *,
        rejected_limit: int | None = None,
    ) -> None:
        """rejected_limit: the most bytes of rejected records to keep for `take_rejected`; None: they are failures."""
        self.tally = Tally(rejected_limit=rejected_limit)
        self._lifecycle = lifecycle
        self._columns = columns
        self._accumulator = accumulator
        self._identity = identity
        self._metrics = metrics
        self._closed = False

    def __repr__(self) -> str:
        # In a forked child the parent's threads may have held the lock of the counts.
        if self._lifecycle.is_forked:
            return f"<{type(self).__name__} of another process>"
        counts = f"{counted(self.report().records, 'record')} acknowledged, {self.tally.failed_records:,} failed"
        if self.discarded:
            return f"<{type(self).__name__} {counts}, discarded>"
        state = "closed" if self._closed else "open"
        return f"<{type(self).__name__} {counts}, {counted(self.tally.unfinished, 'batch', 'batches')} unfinished, {state}>"

    def append(
        self, topic: str, columns: RecordColumns, *, on_bad_rows: OnBadRows | None = None, row_numbers: RowNumbers | None = None
    ) -> None:
        """Appends records of one topic. They are copied, so the columns may be released.

        Waits at most max.block.ms for the topic's metadata, and as long again for memory. A rate limit (max.bytes.per.second,
        max.records.per.second) holds the records back for as long as it takes, until the producer is closed.

        In a transaction, an error of a row, the topic or memory means that the transaction can only be aborted. So does any
        error raised after some rows were buffered. Rows that were passed to `on_bad_rows` are no errors.

        Args:
            topic: name of the topic.
            columns: keys, values and other columns of the records.
            on_bad_rows: called in this thread, in order, with each row that cannot be sent: a serializer refused it, it is too
                large, or its headers, timestamp or partition are invalid. All other rows are appended, in order. Its exceptions
                reach the caller. Its errors have no traceback after it returns. With None the first bad row is an error, and no
                row is sent.
            row_numbers: returns your numbers of some rows, given by their positions in the columns, as an array of the same
                length. `take_rejected` calls it for records that a broker rejected, so that their `rows` are these numbers. The
                scope holds it until the records are acknowledged or taken, so it should not hold the columns. It has no effect
                without keeps_rejected.

        Raises:
            SchemaError: A column has the wrong type or length. Nothing is sent.
            RecordError: A row is invalid, or the topic is. Nothing is sent.
            SerializationError: A serializer rejected a row or the columns. Nothing is sent.
            MetadataTimeoutError: Timed out waiting for the topic's metadata.
            BrokerError: The brokers will never return the topic.
            BufferExhaustedError: Timed out waiting for memory. Some rows may have been buffered.
            DeliveryError: Earlier records of this scope have failed.
            UsageError: The scope or the producer is closed.
        """
        self._check_may_append()
        try:
            numbers = row_numbers if self.tally.keeps_rejected else None
            rows = Append(self.tally, topic, columns, row_numbers=numbers, check_wait=self._check_wait)
            self._columns.append(rows, on_bad_rows)
        except BaseException as error:
            self._identity.append_failed(error)
            raise

    def append_serialized(self, topic: str, columns: RecordColumns, *, may_be_large: bool = False) -> None:
        """Appends records whose keys and values are bytes or text already, past interceptors and serializers.

        Use it for rows that could not be sent as they are, such as those that `append` passed to `on_bad_rows`. `topic`,
        `columns` and errors are those of `append`.

        Args:
            may_be_large: whether a record may be larger than max.request.size before compression. Brokers may still reject it.
        """
        self._check_may_append()
        try:
            rows = Append(self.tally, topic, columns, check_wait=self._check_wait, may_be_large=may_be_large)
            self._columns.append_bytes(rows)
        except BaseException as error:
            self._identity.append_failed(error)
            raise

    def _check_may_append(self) -> None:
        if self.tally.counts_on and not self._lifecycle.must_not_wait:
            self.flush()  # raises the error, with the counts of all that was appended before
        self.tally.raise_error()
        if self.discarded or self._closed:
            raise UsageError(f"append to a send scope that was {'discarded' if self.discarded else 'closed'}")
        self._lifecycle.check_process()
        self._identity.check_may_send(in_own_scope=self.is_transaction)

    def _check_wait(self) -> None:
        self.tally.raise_error()
        if self.discarded:
            raise UsageError("the send scope was discarded during an append")
        self._lifecycle.check_usable()

    def request_topics(self, topics: Iterable[str]) -> None:
        """Requests metadata of `topics`, all together, and returns at once. `append` then need not wait for each.

        Raises:
            RecordError: A name is not valid.
        """
        self._columns.request_topics(topics)

    def rows_per_append(self, topic: str) -> int:
        """Returns the number of rows per append above which the per-row cost is low: 40 per partition; 0 for an unknown topic."""
        return self._columns.rows_per_append(topic)

    def flush(self, timeout: float | None = None) -> None:
        """Sends waiting records and returns once all are acknowledged.

        Args:
            timeout: maximum wait in seconds; None waits for at most delivery.timeout.ms.

        Raises:
            DeliveryError: A record failed. Raised at the first failure, but after a rejected record only when the outcome of
                all others is known.
            FlushTimeoutError: The flush timed out.
        """
        if not self.tally.unfinished:
            self.tally.raise_error()
            return
        self._lifecycle.check_alive()
        self._lifecycle.check_may_wait()
        with self._lifecycle.whole():
            self._accumulator.flush(self.tally)
        self._lifecycle.wake_sender()
        begun_ns = time.monotonic_ns()
        try:
            self.tally.wait_for_acks(timeout, self._lifecycle.check_alive, self._lifecycle.outages)
        finally:
            self._metrics.flushed(time.monotonic_ns() - begun_ns)

    def take_rejected(self) -> list[BadRows]:
        """Returns the records that brokers have rejected since the last call, and forgets them.

        After `flush` these are all. Only a scope made with keeps_rejected has any. Take them before the scope ends.

        Raises:
            UsageError: The `row_numbers` of an append did not return one number for each row.
        """
        return [rows for records in self.tally.take_rejected() for rows in records.bad_rows()]

    def raise_error(self) -> None:
        """Raises DeliveryError if records of this scope have failed."""
        self.tally.raise_error()

    def report(self) -> DeliveryReport:
        """Returns a copy of the current counts."""
        return self.tally.report()

    def progress(self) -> tuple[int, int, int]:
        """Returns the numbers of acknowledged records, of their bytes before compression, and of retried batches so far, in 1
        us.
        """
        return self.tally.progress()

    @property
    def discarded(self) -> bool:
        """Whether unsent records were dropped."""
        return self.tally.discarded

    def discard(self) -> None:
        """Drops unsent records and reports nothing more. Batches in flight are still retried."""
        if self.discarded:
            return
        self.tally.discarded = True
        if not self._lifecycle.is_forked:  # a fork may have copied a lock that a thread of the parent held
            error = UsageError("the send scope was discarded before these records were sent")
            with self._lifecycle.whole():
                self._accumulator.discard(self.tally, error, partial(self._identity.missed, error))

    def close(self) -> None:
        """Flushes and ends the scope. If the flush raises, unsent records are discarded. Further calls do nothing.

        Raises:
            DeliveryError: A record failed, or rejected records were not taken by `take_rejected`, so they would be lost.
            FlushTimeoutError: The flush timed out.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not self.discarded:
                self.flush()
                self.tally.raise_kept("the scope ends")
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


class TransactionScope(SendScope):
    """A transaction made by `Producer.transaction(id)`. Use it as a context manager.

    Leaving it without `prepare` aborts the transaction. The abort never raises, so the original exception is kept. Threads as in
    SendScope.
    """

    is_transaction = True

    def __init__(
        self,
        lifecycle: Lifecycle,
        columns: ColumnAppender,
        accumulator: RecordAccumulator,
        identity: Identity,
        metrics: SenderMetrics,
        transactions: TransactionCalls,
        *,
        rejected_limit: int | None = None,
    ) -> None:
        """`transactions` has just opened this transaction. rejected_limit: as in SendScope."""
        super().__init__(lifecycle, columns, accumulator, identity, metrics, rejected_limit=rejected_limit)
        self._transactions = transactions
        self._manager = transactions.identity.latest
        self._prepared = False

    def prepare(self, timeout: float | None = None) -> TransactionHandle | None:
        """Waits until all records are acknowledged and leaves the transaction open, to be ended by the holder of the handle.

        Args:
            timeout: maximum wait of the flush, in seconds; None waits for at most delivery.timeout.ms.

        Returns:
            The handle, or None if no transaction is open: nothing was appended, or brokers rejected every record.

        Raises:
            DeliveryError: As in `flush`, or rejected records were not taken by `take_rejected`, so they would be lost.
            FlushTimeoutError: As in `flush`.
            UsageError: The transaction has already ended.
        """
        if self.discarded or self._closed:
            raise UsageError("prepare() was called on a transaction that has ended")
        self._lifecycle.check_alive()  # in a forked child the transaction belongs to the parent
        self.flush(timeout)
        self.tally.raise_kept("prepare()")
        report = self.report()
        manager = self._manager
        if not report.records and manager.first_sent is not None:
            manager.check_may_send()
            self._transactions.abort_quietly()
            return None
        manager.prepare()
        self._prepared = True
        if not report.records:
            return None
        partitions = partition_ranges(report.partitions)
        return TransactionHandle(
            manager.transactional_id,
            manager.producer.producer_id,
            manager.producer.epoch,
            manager.version,
            report.records,
            partitions,
            manager.topic_ids(topic for topic, _ in partitions),
        )

    def _check_wait(self) -> None:
        super()._check_wait()
        self._transactions.check_open_since(self._manager.first_sent, self.report().rate_limited_ms)

    @property
    def first_sent(self) -> float | None:
        """The time at which the first records were sent, on time.monotonic's clock; None before that.

        The transaction's timeout starts about then: records that wait for more records or for a broker have not begun it.
        """
        return self._manager.first_sent

    def close(self) -> None:
        """Ends the scope, and aborts a transaction that was not prepared. Further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._prepared:
                self.discard()
                self._transactions.abort_quietly()
        finally:
            self._lifecycle.scope_closed()

    def __exit__(self, *_: object) -> None:
        self.close()
