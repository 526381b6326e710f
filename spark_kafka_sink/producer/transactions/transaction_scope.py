"""One transaction of a task: a send scope that ends open at the broker, for somebody else to commit, or aborted."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.accumulator.send_scope import ScopeOwner, SendScope
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from spark_kafka_sink.producer.transactions.transaction_manager import TransactionManager


class TransactionScope(SendScope):
    """`Producer.transaction(id)` makes one, to be used in a `with`. Leaving it without `prepare` aborts the transaction, and
    never raises: whatever was on its way stays the error.

    Threads as in SendScope.
    """

    def __init__(
        self, owner: ScopeOwner, on_close: Callable[[SendScope], None], manager: TransactionManager, abort: Callable[[], None]
    ) -> None:
        """abort: ends the open transaction at the broker; it does not raise."""
        super().__init__(owner, on_close)
        self._manager = manager
        self._abort = abort
        self._prepared = False

    def prepare(self, timeout_s: float | None = None) -> TransactionHandle | None:
        """Wait until all records are acked, and leave the transaction open: whoever has the handle is to commit or to abort it.
        None when nothing was appended, and so nothing is open.

        timeout_s: of the flush, in seconds. Raises as `flush` does; UsageError for a second call.
        """
        if self.discarded or self._closed:
            raise UsageError("prepare() of a transaction that has ended")
        self._owner.check_alive()  # in a forked child the transaction is the parent's to prepare
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
                self._abort()
        finally:
            self._on_close(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
