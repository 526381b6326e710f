"""One transaction of a task: a send scope that either stays open at the broker for another process to commit, or is aborted."""

from __future__ import annotations

from types import TracebackType

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.identity.identity import Identity
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from spark_kafka_sink.producer.transactions.transaction_calls import TransactionCalls


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

    def prepare(self, timeout_s: float | None = None) -> TransactionHandle | None:
        """Waits until all records are acknowledged and leaves the transaction open, to be ended by the holder of the handle.

        Args:
            timeout_s: maximum wait of the flush, in seconds; None waits for at most delivery.timeout.ms.

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
        self.flush(timeout_s)
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
