"""One transaction of a task: a send scope that ends open at the broker, for somebody else to commit, or aborted."""

from __future__ import annotations

from types import TracebackType

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from spark_kafka_sink.producer.transactions.transaction_calls import TransactionCalls
from spark_kafka_sink.producer.transactions.transactional_identity import TransactionalIdentity


class TransactionScope(SendScope):
    """`Producer.transaction(id)` makes one, to be used in a `with`. Leaving it without `prepare` aborts the transaction, and
    never raises: whatever was on its way stays the error.

    Threads as in SendScope.
    """

    is_transaction = True

    def __init__(
        self,
        lifecycle: Lifecycle,
        columns: ColumnAppender,
        accumulator: RecordAccumulator,
        identity: TransactionalIdentity,
        metrics: SenderMetrics,
        transactions: TransactionCalls,
    ) -> None:
        """transactions: has just opened this one."""
        super().__init__(lifecycle, columns, accumulator, identity, metrics)
        self._transactions = transactions
        self._manager = identity.latest
        self._prepared = False

    def prepare(self, timeout_s: float | None = None) -> TransactionHandle | None:
        """Wait until all records are acked, and leave the transaction open: whoever has the handle is to commit or to abort it.
        None when nothing was appended, and so nothing is open.

        timeout_s: of the flush, in seconds. Raises as `flush` does; UsageError for a second call.
        """
        if self.discarded or self._closed:
            raise UsageError("prepare() of a transaction that has ended")
        self._lifecycle.check_alive()  # in a forked child the transaction is the parent's to prepare
        self.flush(timeout_s)
        report = self.report()
        manager = self._manager
        manager.prepare()
        self._prepared = True
        if not report.records:
            return None
        return TransactionHandle(
            manager.transactional_id,
            manager.producer.producer_id,
            manager.producer.epoch,
            manager.version,
            report.records,
            partition_ranges(report.partitions),
        )

    @property
    def first_sent(self) -> float | None:
        """The time at which the first records went out, on time.monotonic's clock; None before.

        The transaction's time is counted from about then: records that wait for more, or for a broker, have begun nothing.
        """
        return self._manager.first_sent

    def close(self) -> None:
        """End the scope; a transaction that was not prepared is aborted. A second call does nothing."""
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
