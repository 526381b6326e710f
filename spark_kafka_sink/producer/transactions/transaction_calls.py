"""A transactional producer: its calls, and the identity under which the sender thread sends their records.

Calls are started in the program's thread, executed in the sender thread, and awaited with a deadline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    FlushTimeoutError,
    KafkaSinkError,
    ProducerFencedError,
    SchemaError,
    SerializationError,
    TransactionAbortableError,
    TransactionAuthorizationError,
    TransactionError,
    UsageError,
)
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.base.produce_reactions import Action
from spark_kafka_sink.producer.identity import MAX_PRODUCE_VERSION, NumberedIdentity
from spark_kafka_sink.producer.producer_metadata import ProducerMetadata
from spark_kafka_sink.producer.transactions.coordinator_client import TransactionCoordinatorClient
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, Offsets, checked_group, checked_offsets
from spark_kafka_sink.producer.transactions.states import Call, State
from spark_kafka_sink.producer.transactions.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

# The last version of Produce with which the producer itself adds partitions to the transaction (KIP-890).
MAX_PRODUCE_VERSION_1 = 11
# The batch may have been stored, or may be yet.
_UNSURE = (Action.RETRY, Action.TOPIC_UNKNOWN)
# In a Produce response: the transaction was ended by another than this producer.
_OF_EPOCH = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
# Errors of an append that has buffered nothing.
_WRONG_CALL = (SchemaError, SerializationError, UsageError)


class TransactionalIdentity(NumberedIdentity):
    """Sends batches under the transaction's producer id. A failed batch means that the transaction can only be aborted.

    Threads as in Identity. A program's calls use `latest`, which any thread may replace; the sender thread continues with
    `_manager` until nothing of it is left.
    """

    ends_with_fatal_errors = False
    is_transactional = True

    def __init__(
        self, config: ProducerConfig, client: NetworkClient, metadata: ProducerMetadata, accumulator: RecordAccumulator
    ) -> None:
        self._id = config.transactional_id
        self._timeout_ms = config.transaction_timeout_ms
        self._close_timeout_ms = config.max_block_ms
        self._finalized_feature = client.finalized_feature
        self._accumulator = accumulator
        self._coordinators = TransactionCoordinatorClient(config, client, metadata, accumulator)
        self._gaps: set[PartitionQueue] = set()  # behind rejected records
        # Without a transactional.id this manager is never initialized; opening a transaction replaces it.
        self.latest = self._manager = self._made(self._id or "", single=False)

    def open(self, transactional_id: str) -> TransactionManager:
        """Continues under this id with a single transaction, once nothing of the previous one is left. From any thread."""
        self.latest = self._made(transactional_id, single=True)
        return self.latest

    def _made(self, transactional_id: str, *, single: bool) -> TransactionManager:
        return TransactionManager(transactional_id, self._timeout_ms, self._finalized_feature, single=single)

    # What may be sent

    @property
    def current(self) -> ProducerIdAndEpoch | None:
        return self._manager.sends_as

    @property
    def blocked_reason(self) -> str:
        if not self._manager.transactional_id:
            return "no transaction is open"
        return f"the transaction is not ready: {self._manager.blocked_reason}"

    @property
    def transactional_id(self) -> str:
        return self._manager.transactional_id

    @property
    def max_produce_version(self) -> int:
        return MAX_PRODUCE_VERSION_1 if self._manager.version < 2 else MAX_PRODUCE_VERSION

    def may_drain(self, queue: PartitionQueue) -> bool:
        """Returns whether a partition may be sent. Under transaction version 1 it must be added to the transaction first."""
        return self._manager.may_drain(queue)

    def may_send_to(self, node: int) -> bool:
        """Returns False for a broker that is too old, and fails the transaction, which can then only be aborted."""
        error = self._coordinators.too_old(self._manager, node)
        if error is not None:
            self._manager.failed(error)
        return error is None

    def cluster_changed(self, error: KafkaSinkError) -> None:
        """Fails what has a producer id of the cluster of before."""
        for manager in {self._manager, self.latest}:
            if manager.producer != NO_PRODUCER:
                manager.fatal(error)

    def sending(self) -> None:
        self._manager.sending()

    # Outcome of batches

    def decide(self, action: Action, batch: SealedBatch, answer: PartitionProduceResponse) -> Action:
        """A transaction has one epoch: an error that another epoch would cure fails the batch and so aborts the transaction.

        Batches behind rejected records are out of order, and are numbered again. That ends when it is not known of one of them
        whether it was stored: under its next numbers it might be stored twice.
        """
        sequences = batch.queue.sequences
        if action is Action.PRODUCER_LOST and answer.log_start_offset >= 0:
            return Action.FAIL
        if sequences is None:
            return action
        if action is Action.OUT_OF_ORDER and sequences.is_first(batch) and not sequences.gap:
            return Action.FAIL
        if action in _UNSURE and batch.first_record >= sequences.gap_from:
            return Action.FAIL
        return action

    def advice(self, code: int) -> str:
        first_sent = self._manager.first_sent
        if code not in _OF_EPOCH or first_sent is None or time.monotonic() - first_sent <= self._timeout_ms / 1000:
            return ""
        return (
            f"{_open_too_long(self._timeout_ms)}; raise transaction.timeout.ms (in Spark: kafka.transaction.timeout.ms), or write"
            " fewer records in a transaction"
        )

    def may_leave_out(self, batch: SealedBatch) -> bool:
        return batch.queue.sequences is None or batch.queue.sequences.may_leave_out(batch)

    def left_out(self, batch: SealedBatch) -> None:
        if batch.queue.sequences is not None:
            batch.queue.sequences.left_out(batch)

    def settled(self, queue: PartitionQueue) -> None:
        if queue.sequences is not None and queue.sequences.gap:
            self._gaps.add(queue)

    def resolve_gaps(self) -> None:
        """Numbers batches behind rejected records again, once none of them is in flight.

        If the transaction has failed its gaps stay: nothing more is sent.
        """
        for queue in list(self._gaps):
            sequences = queue.sequences
            if sequences is not None and sequences.gap and self.unsent_error() is None:
                if sequences.waits_for_answers:
                    continue
                if not sequences.close_up():
                    self._manager.failed(_not_numbered_again(queue))
            self._gaps.discard(queue)
            self._accumulator.answered(queue)

    def given_up(self, batch: SealedBatch) -> None:
        self._manager.dropped()
        self.dropped(batch)

    def failed(self, error: KafkaSinkError) -> None:
        self._manager.failed(error)

    def fatal(self, error: BrokerError) -> None:
        kind: type[TransactionError] = TransactionError
        if isinstance(error, AuthorizationError):
            kind = TransactionAuthorizationError
        elif error.facts.get("error_code") == ErrorCode.PRODUCER_FENCED:
            kind = ProducerFencedError
        transactional_id = self._manager.transactional_id
        text = f"transactional id {transactional_id}: {error.message}"
        self._manager.fatal(kind(text, **error.facts | {"transactional_id": transactional_id}))

    def rejected(self, node: int, error: AuthenticationError) -> None:
        if self._coordinators.waits_to_connect_to == node:
            self._manager.rejected(error)

    # Own requests

    def unsent_error(self) -> KafkaSinkError | None:
        return self._manager.unsent_error()

    @property
    def is_committing(self) -> bool:
        return self._manager.state is State.COMMITTING_TRANSACTION

    @property
    def waits_for(self) -> tuple[str, int] | None:
        number = self._coordinators.waits_for
        return None if number is None else (self._manager.transactional_id, number)

    def step(self, now_ms: int, is_flushed: Callable[[], bool]) -> int:
        if self._manager is not self.latest and is_flushed():
            self._manager = self.latest
            self._coordinators.start_over()
        return self._coordinators.step(self._manager, now_ms, is_flushed)

    def answered(self, response: ClientResponse, now_ms: int) -> None:
        self._coordinators.answered(response, now_ms)

    # A program's calls

    def check_may_send(self, *, in_own_scope: bool = False) -> None:
        """Raises UsageError outside a transaction's scope if each transaction has its own id.

        Only the scope tracks the transaction's records: `prepare` would not wait for records sent outside it, nor would the
        handle include them.
        """
        if self._id is None and not in_own_scope:
            raise UsageError(
                "records cannot be sent outside a transaction: open one with producer.transaction(transactional_id) and"
                " append to it"
            )
        self.latest.check_may_send()

    def append_failed(self, error: BaseException) -> None:
        """Fails the transaction, as a failed single record does, unless the call was wrong and no rows were buffered."""
        if not isinstance(error, KafkaSinkError):  # an interrupt: an unknown number of rows may be in batches
            self.missed(KafkaSinkError(f"an append of columns failed with {type(error).__name__}: {error}"))
        elif error.facts.get("buffered") or not isinstance(error, _WRONG_CALL):
            self.missed(error)

    def missed(self, error: KafkaSinkError) -> None:
        """Records a lost record, without which nothing may be committed (KafkaProducer.doSend)."""
        self.latest.missed(error)

    # End

    def close(self, now_ms: int) -> bool:
        return self._manager.close(now_ms, self._close_timeout_ms)

    def fail(self, error: KafkaSinkError) -> None:
        for manager in {self._manager, self.latest}:
            manager.fatal(error)


def _open_too_long(limit_ms: int) -> str:
    limit_s = f"{limit_ms / 1000:,.0f} s"
    return f"the transaction has been open for longer than transaction.timeout.ms ({limit_s}), so its coordinator aborts it"


def _not_numbered_again(queue: PartitionQueue) -> TransactionError:
    text = (
        f"topic {queue.topic} partition {queue.partition}: records behind a rejected one cannot be sent in the same transaction,"
        " because the outcome of an earlier attempt is not known"
    )
    return TransactionError(text, topic=queue.topic, partition=queue.partition)


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
        """`flush` waits for the outcome of all single records, and raises FlushTimeoutError after the given seconds."""
        self._call(Call.COMMIT, self._record_manager(), timeout, flush)

    def abort(self, timeout: float | None) -> None:
        self._call(Call.ABORT, self._record_manager(), timeout)

    def open(self, transactional_id: str) -> None:
        """Begins a transaction under its own id. A previous producer with the id is fenced."""
        if self._config.transactional_id is not None:
            raise UsageError("the producer has a transactional.id: use begin_transaction(), not transaction()")
        manager = self.identity.open(transactional_id)
        self._call(Call.INIT, manager, None)
        manager.begin()

    def check_open_since(self, first_sent: float | None, rate_limited_ms: int) -> None:
        """Raises TransactionAbortableError if a coordinator has aborted a transaction whose appends waited for the rate limit.
        first_sent: when its first records were sent, on time.monotonic's clock; None before that.
        """
        limit_ms = self._config.transaction_timeout_ms
        if first_sent is None or time.monotonic() - first_sent <= limit_ms / 1000:
            return
        name = self.identity.latest.transactional_id
        raise TransactionAbortableError(
            f"transactional id {name}: {_open_too_long(limit_ms)}. A rate limit (max.bytes.per.second, max.records.per.second)"
            f" has held its records back for {rate_limited_ms / 1000:,.0f} s: raise the limit or transaction.timeout.ms, or write"
            " fewer records in a transaction",
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
                " meanwhile belong to the next transaction. Call commit_transaction() only while no send() is running",
                manager.transactional_id,
            )

    def _check(self) -> None:
        self._lifecycle.check_alive()
        self._lifecycle.check_may_wait()

    def _record_manager(self) -> TransactionManager:
        if self._config.transactional_id is None:
            raise UsageError("the producer has no transactional.id: set it and call init_transactions()")
        return self.identity.latest
