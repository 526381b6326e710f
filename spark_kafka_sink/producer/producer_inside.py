"""What a producer's scopes and transactions ask of it: the half of a Producer that programs do not see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.errors import KafkaSinkError, UsageError
from spark_kafka_sink.producer.accumulator.appender import ThunkOf
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.send_scope import SendScope
from spark_kafka_sink.producer.callbacks import in_callback
from spark_kafka_sink.producer.column_sender import Chosen, ColumnSender
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.process import process
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer
from spark_kafka_sink.records.columns import RecordColumns

if TYPE_CHECKING:
    from spark_kafka_sink.producer.transactions.transactions import Transactions


class ProducerInside:
    """Threads as in Producer, which makes all that is named here."""

    _pid: int
    _closed: bool
    _accumulator: RecordAccumulator
    _columns: ColumnSender
    _gathered: RecordBuffer
    _metrics: SenderMetrics
    _pool: BufferPool
    _sender: Sender
    _transactions: Transactions | None

    # What a scope asks for (ScopeOwner)

    def append(self, scope: SendScope, topic: str, columns: RecordColumns) -> None:
        self.check_process()
        with self._true_cause(), nullcontext() if self._transactions is None else self._transactions.appending(scope):
            self._columns.append(scope, topic, columns)

    def append_gathered(
        self, scope: SendScope, topic: str, columns: RecordColumns, deadline: float, thunk_of: ThunkOf, chosen: Chosen
    ) -> None:
        with self._true_cause():
            self._columns.append_gathered(scope, topic, columns, deadline, thunk_of, chosen)

    def rows_per_append(self, topic: str) -> int:
        return self._columns.rows_per_append(topic)

    def flush_scope(self, scope: SendScope) -> None:
        self.check_alive()
        self.check_may_wait()
        self._accumulator.flush(scope)
        self._sender.wakeup()

    def flushed(self, waited_ns: int) -> None:
        self._metrics.flushed(waited_ns)

    def discard_scope(self, scope: SendScope) -> None:
        if process.pid != self._pid:
            return  # a fork may have copied a lock that a thread of the parent held
        error = UsageError("the records were discarded with their send scope before they were sent")
        with scope.appending:
            dropped = self._accumulator.discard(scope, partial(self._missed, error))
            for batch in dropped:
                batch.memory.give_back(self._pool)
        for batch in dropped:  # without the lock: an interceptor hears of it
            batch.failed(error)

    def check_usable(self) -> None:
        """Raise what stands in the way of new records, if anything does."""
        self.check_alive()
        self._check_open()

    def check_alive(self) -> None:
        """Raise why nothing that was appended can be acked any more, if that is so."""
        self.check_process()
        if self._sender.failure is not None:
            raise self._sender.failure.with_traceback(None)  # raised again and again: each time it would become longer
        if not self._sender.is_alive():
            raise UsageError("the producer is closed")

    def check_may_wait(self) -> None:
        """Raise why waiting for an answer would be for ever, if it would."""
        if process.pid != self._pid:
            raise UsageError(
                f"this producer belongs to process {self._pid}; in a forked child nothing more is known of its records"
            )
        if self._must_not_wait():
            raise UsageError("a delivery callback must not wait for records: it may run in the thread that would answer")

    def check_process(self) -> None:
        if process.pid != self._pid:
            raise UsageError(f"this producer belongs to process {self._pid}; a forked child must make its own")

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the producer is closed")

    # What transactions ask for (TransactionOwner)

    def flush_gathered(self, timeout_s: float) -> None:
        self._gathered.flush(timeout_s)

    def wake_sender(self) -> None:
        self._sender.wakeup()

    # Inside

    def _missed(self, error: KafkaSinkError) -> None:
        if self._transactions is not None:
            self._transactions.refused(error)

    @contextmanager
    def _true_cause(self) -> Iterator[None]:
        """The pool and the metadata only know that they were closed; why is the producer's to say."""
        try:
            yield
        except UsageError as error:
            if self._sender.failure is not None:
                raise self._sender.failure.with_traceback(None) from error
            raise

    def _must_not_wait(self) -> bool:
        """In the sender's thread, and in a callback wherever it runs: what it waits for may wait for the locks around it."""
        return in_callback() or self._sender.is_current_thread()
