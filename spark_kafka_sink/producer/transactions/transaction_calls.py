"""Calls of a transactional producer: started in the program's thread, executed in the sender thread, awaited with a deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.errors import FlushTimeoutError, KafkaSinkError, TransactionAbortableError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, Offsets, checked_group, checked_offsets
from spark_kafka_sink.producer.transactions.states import Call
from spark_kafka_sink.producer.transactions.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transactions.transactional_identity import TransactionalIdentity

logger = logging.getLogger(__name__)

# Time limit of an abort whose result no call waits for. Otherwise the transaction ends with transaction.timeout.ms.
QUIET_ABORT_S = 10.0


_TIMED: Final[Mapping[Call, str]] = {Call.INIT: "txn-init", Call.COMMIT: "txn-commit", Call.ABORT: "txn-abort"}


class TransactionCalls:
    """Transaction calls from any thread, one at a time.

    Their time is counted as in Java's KafkaProducer: from the first change of state to the end of the wait, in calls that
    succeed.

    With transactional.id there is one TransactionManager for the producer's life; without it each transaction has its own
    (`open`).
    """

    def __init__(
        self,
        config: ProducerConfig,
        lifecycle: Lifecycle,
        client: NetworkClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        timing: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """`timing` returns a context manager that adds to a statistic (SenderMetrics.timing)."""
        self._lifecycle = lifecycle
        self._config = config
        self.identity = TransactionalIdentity(config, client, metadata, accumulator)
        self._timing = timing
        self._max_block_s = config.max_block_ms / 1000

    def init(self, timeout: float | None) -> None:
        self._call(Call.INIT, self._record_manager(), timeout)

    def begin(self) -> None:
        self._lifecycle.check_alive()
        manager = self._record_manager()
        with self._timing("txn-begin"), self._lifecycle.whole():
            manager.begin()

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        manager = self._record_manager()
        of, checked = checked_group(group), checked_offsets(offsets)
        self._check()
        if not checked:
            return
        with self._timing("txn-send-offsets"):
            with self._lifecycle.whole():
                manager.add_offsets(of, checked, monotonic_ms() + self._config.max_block_ms)
            self._lifecycle.wake_sender()
            manager.wait_for_offsets(of.group_id, self._max_block_s, self._lifecycle.check_alive)

    def commit(self, timeout: float | None, flush: Callable[[float], None]) -> None:
        """Commits. `flush` waits until all single records are acknowledged or failed, and raises FlushTimeoutError after the
        given seconds.
        """
        self._call(Call.COMMIT, self._record_manager(), timeout, flush)

    def abort(self, timeout: float | None) -> None:
        self._call(Call.ABORT, self._record_manager(), timeout)

    def open(self, transactional_id: str) -> None:
        """Begins a transaction under its own id. A previous producer with the id is fenced."""
        if self._config.transactional_id is not None:
            raise UsageError("the producer has a transactional.id: use begin(), not transaction()")
        manager = self.identity.open(transactional_id)
        self._call(Call.INIT, manager, None)
        manager.begin()

    def check_open_since(self, first_sent: float | None, rate_limited_ms: int) -> None:
        """Raises TransactionAbortableError if the coordinator has aborted a transaction whose appends wait for the rate limit.

        Args:
            first_sent: when its first records were sent, on time.monotonic's clock; None before that.
            rate_limited_ms: how long its appends have waited for the limit.
        """
        limit_s = self._config.transaction_timeout_ms / 1000
        if first_sent is None or time.monotonic() - first_sent <= limit_s:
            return
        name = self.identity.latest.transactional_id
        raise TransactionAbortableError(
            f"transactional id {name}: the transaction has been open for longer than transaction.timeout.ms ({limit_s:,.0f} s),"
            " so its coordinator aborts it. A rate limit (max.bytes.per.second, max.records.per.second) has held its records"
            f" back for {rate_limited_ms / 1000:,.0f} s: raise the limit or transaction.timeout.ms, or write fewer records in a"
            " transaction",
            transactional_id=name,
        )

    def abort_quietly(self) -> None:
        """Aborts an open transaction. Errors are only logged."""
        manager = self.identity.latest
        if not manager.is_open:
            return
        try:
            self._call(Call.ABORT, manager, min(QUIET_ABORT_S, self._max_block_s))
        except KafkaSinkError as error:
            logger.warning("the transaction could not be aborted and stays open until transaction.timeout.ms: %s", error)

    def _call(
        self, call: Call, manager: TransactionManager, timeout: float | None, flush: Callable[[float], None] | None = None
    ) -> None:
        self._check()
        timeout = self._max_block_s if timeout is None else timeout
        begun = time.monotonic()
        is_late = False
        with self._timing(_TIMED[call]):
            with self._lifecycle.whole():
                manager.start(call, monotonic_ms() + int(timeout * 1000))
            if flush is not None:
                try:
                    flush(timeout)
                except FlushTimeoutError:  # `wait` reports it, unless the records came too late
                    is_late = True
            self._lifecycle.wake_sender()
            manager.wait(call, timeout, self._lifecycle.check_alive, begun=begun)
        if is_late:
            logger.warning(
                "transactional id %s: the transaction is committed if its records are; records that another thread sent"
                " meanwhile belong to the next transaction. Call commit() only while no send() is running",
                manager.transactional_id,
            )

    def _check(self) -> None:
        self._lifecycle.check_alive()
        self._lifecycle.check_may_wait()

    def _record_manager(self) -> TransactionManager:
        if self._config.transactional_id is None:
            raise UsageError("the producer has no transactional.id: set it and call init_transactions()")
        return self.identity.latest
