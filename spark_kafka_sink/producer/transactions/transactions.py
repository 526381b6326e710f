"""What a program calls of a transactional producer: begun in its thread, done in the sender's, waited for with a deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import FlushTimeoutError, KafkaSinkError, SchemaError, SerializationError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.accumulator.send_scope import SendScope
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, Offsets, checked_group, checked_offsets
from spark_kafka_sink.producer.transactions.states import Call
from spark_kafka_sink.producer.transactions.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transactions.transaction_scope import TransactionScope
from spark_kafka_sink.producer.transactions.transaction_sender import TransactionSender

log = logging.getLogger(__name__)

# An abort that nobody waits for the outcome of: what is left open ends with transaction.timeout.ms.
QUIET_ABORT_S = 10.0
# Of an append that has not taken anything.
_WRONG_CALL = (SchemaError, SerializationError, UsageError)


class Features(Protocol):
    """What is asked of a NetworkClient."""

    def finalized_feature(self, name: str) -> int: ...


class TransactionOwner(Protocol):
    """What transactions need of their producer."""

    def check_alive(self) -> None: ...

    def check_may_wait(self) -> None: ...

    def flush_gathered(self, timeout_s: float) -> None: ...

    def wake_sender(self) -> None: ...


class Transactions:
    """Calls from any thread, one at a time. With transactional.id there is one TransactionManager for good; without it each
    transaction has one of its own (`open`)."""

    def __init__(self, owner: TransactionOwner, config: ProducerConfig, sender: TransactionSender, features: Features) -> None:
        self._owner = owner
        self._config = config
        self._sender = sender
        self._features = features
        self._max_block_s = config.max_block_ms / 1000
        self._manager: TransactionManager | None = None
        if config.transactional_id is not None:
            self._manager = self._managed(config.transactional_id, single=False)

    def init(self, timeout: float | None) -> None:
        self._call(Call.INIT, self._record_manager(), timeout)

    def begin(self) -> None:
        self._owner.check_alive()
        self._record_manager().begin()

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        manager = self._record_manager()
        of, wanted = checked_group(group), checked_offsets(offsets)
        self._check()
        if not wanted:
            return
        manager.add_offsets(of, wanted, monotonic_ms() + self._config.max_block_ms)
        self._owner.wake_sender()
        manager.wait_for_offsets(of.group_id, self._max_block_s, self._owner.check_alive)

    def commit(self, timeout: float | None) -> None:
        self._call(Call.COMMIT, self._record_manager(), timeout)

    def abort(self, timeout: float | None) -> None:
        self._call(Call.ABORT, self._record_manager(), timeout)

    def open(self, transactional_id: str) -> TransactionManager:
        """A transaction of its own, begun, under this id: whoever had that before is fenced."""
        if self._config.transactional_id is not None:
            raise UsageError("the producer has a transactional.id: its transactions begin with begin()")
        manager = self._manager = self._managed(transactional_id, single=True)
        self._call(Call.INIT, manager, None)
        manager.begin()
        return manager

    def abort_quietly(self) -> None:
        """Abort what is open, if anything is; what stands against that is only told in the log."""
        manager = self._manager
        if manager is None or not manager.is_open:
            return
        try:
            self._call(Call.ABORT, manager, min(QUIET_ABORT_S, self._max_block_s))
        except KafkaSinkError as error:
            log.warning("the transaction could not be aborted, and stays open until transaction.timeout.ms: %s", error)

    def check_may_send(self, scope: SendScope | None = None) -> None:
        """UsageError outside of a transaction. Where each has an id of its own only its scope counts what belongs to it: what is
        sent beside that (scope None, or another) would not be waited for by `prepare`, nor be in its handle."""
        is_beside = self._config.transactional_id is None and not isinstance(scope, TransactionScope)
        if self._manager is None or is_beside:
            raise UsageError(
                "nothing can be sent outside of a transaction: open one with producer.transaction(transactional_id), and append"
                " to that"
            )
        self._manager.check_may_send()

    @contextmanager
    def appending(self, scope: SendScope) -> Iterator[None]:
        """Around an append of columns. What it raises lets nothing be committed any more, as it does of a single record; but not
        that the call was wrong, unless rows were taken before that was seen."""
        self.check_may_send(scope)
        try:
            yield
        except KafkaSinkError as error:
            if error.facts.get("buffered") or not isinstance(error, _WRONG_CALL):
                self.refused(error)
            raise
        except BaseException as error:  # an interrupt: rows may be in batches, and nobody knows how many
            self.refused(KafkaSinkError(f"an append of columns ended with {type(error).__name__}: {error}"))
            raise

    def refused(self, error: KafkaSinkError) -> None:
        """A record of the open transaction got into no batch, or is dropped with its scope: without it nothing may be committed
        (KafkaProducer.doSend)."""
        if self._manager is not None:
            self._manager.missed(error)

    def _call(self, call: Call, manager: TransactionManager, timeout: float | None) -> None:
        self._check()
        timeout = self._max_block_s if timeout is None else timeout
        begun = time.monotonic()
        manager.start(call, monotonic_ms() + int(timeout * 1000))
        is_late = call is Call.COMMIT and not self._flush(timeout)
        self._owner.wake_sender()
        manager.wait(call, timeout, self._owner.check_alive, begun=begun)
        if is_late:
            log.warning(
                "transactional id %s: the transaction is committed, without records that another thread has sent meanwhile, if it"
                " has: they belong to the next one; call commit() when no send() is running",
                manager.transactional_id,
            )

    def _flush(self, timeout_s: float) -> bool:
        """Whether all single records are acked or failed within the time; if not `wait` says so, unless they came too late."""
        try:
            self._owner.flush_gathered(timeout_s)
        except FlushTimeoutError:
            return False
        return True

    def _check(self) -> None:
        self._owner.check_alive()
        self._owner.check_may_wait()

    def _managed(self, transactional_id: str, *, single: bool) -> TransactionManager:
        timeout_ms, feature = self._config.transaction_timeout_ms, self._features.finalized_feature
        manager = TransactionManager(transactional_id, timeout_ms, feature, single=single)
        self._sender.use(manager)
        return manager

    def _record_manager(self) -> TransactionManager:
        if self._manager is None or self._config.transactional_id is None:
            raise UsageError("the producer has no transactional.id: set it, and call init_transactions()")
        return self._manager


class TransactionalRecords:
    """Records that may be sent inside of a transaction only."""

    def __init__(self, records: Any, transactions: Transactions) -> None:
        self._send = records.send
        self._check_may_send = transactions.check_may_send
        self._refused = transactions.refused

    def send(self, *record: Any) -> Any:
        """As Producer.send says."""
        self._check_may_send()
        future = self._send(*record)
        if future.done() and (error := future.exception(0)) is not None:
            self._refused(error)
        return future
