"""One transactional id as its producer sees it: its state, its open transaction and the next request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from spark_kafka_sink.change_signal import Changes
from spark_kafka_sink.client.topics import records_are_gone, replaced
from spark_kafka_sink.errors import (
    AuthenticationError,
    KafkaSinkError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimeoutError,
    UsageError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue
from spark_kafka_sink.producer.accumulator.sequences import MAX_EPOCH, NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.base.lifecycle import wait_until
from spark_kafka_sink.producer.base.produce_reactions import FORGOTTEN
from spark_kafka_sink.producer.transactions import requests
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from spark_kafka_sink.producer.transactions.requests import Contents, TransactionRequest
from spark_kafka_sink.producer.transactions.states import (
    ALLOWED_IN,
    NEXT,
    UNDER_WAY,
    Call,
    Reaction,
    State,
    check_call,
)
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID

logger = logging.getLogger(__name__)

FEATURE = "transaction.version"
_SENDING = frozenset({State.IN_TRANSACTION, State.COMMITTING_TRANSACTION})


class TransactionManager:
    """The state of one transactional id. Java's TransactionManager without the sequence numbers.

    Program threads make calls and wait for them; the sender thread gets the next request and reports responses. `_lock` guards
    the state, the pending calls and the offsets. The transaction's contents belong to the sender thread.
    """

    def __init__(
        self, transactional_id: str, timeout_ms: int, finalized_feature: Callable[[str], int], *, single: bool = False
    ) -> None:
        """timeout_ms: transaction.timeout.ms. single: whether no epoch is needed after the first transaction."""
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._finalized_feature = finalized_feature
        self.is_for_others = single  # another process may end the transaction, which requires newer brokers (verification.py)
        self._lock = Lock()
        self._changes = Changes()
        self.state = State.UNINITIALIZED
        self._error: KafkaSinkError | None = None  # the first error, in an error state
        self._pending: Call | None = None  # whose end no caller has seen yet
        self._commit_is_asked = False  # EndTxn may be in flight: nothing can prevent the commit any more
        self._are_topics_checked = False  # they still have the ids under which records were sent
        self._is_committed = False  # the pending call has committed, whatever becomes of the next epoch
        self._closing = False
        self._deadline_ms = 0  # end of the pending call; monotonic
        self.producer = NO_PRODUCER
        self.version = 1  # transaction version; 2 is KIP-890
        self.first_sent: float | None = None  # when the transaction's first records were sent, on time.monotonic's clock
        self.blocked_reason = "the sender thread has not started it yet"  # why a call takes so long
        self._contents = Contents(transactional_id)
        # Owned by the sender thread
        self._new_epoch = False  # needed before the next transaction
        self._without_end = False  # the coordinator would not understand EndTxn

    def topic_ids(self, topics: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Returns the ids that topics of the transaction had before records were sent to them; none if brokers have none."""
        ids = self._contents.topic_ids()
        return tuple((topic, str(ids[topic])) for topic in topics if ids[topic] != ZERO_UUID)

    @property
    def is_open(self) -> bool:
        return self.state in ALLOWED_IN[Call.ABORT]

    # Calls

    def start(self, call: Call, deadline_ms: int) -> None:
        """Starts init_transactions, commit or abort, or continues it until a later deadline."""
        with self._lock:
            self._deadline_ms = deadline_ms
            if self._pending is call:
                return
            self._check(call)
            self._move(_LEADS_TO[call])
            self._pending = call
            self._are_topics_checked = self._is_committed = self._commit_is_asked = False
            if call is Call.ABORT:
                self._contents.forget_waiting()

    def begin(self) -> None:
        with self._lock:
            self._check(Call.BEGIN)
            self._move(State.IN_TRANSACTION)
            self._commit_is_asked = False  # that was about the previous transaction
            self.first_sent = None

    def add_offsets(
        self, group: ConsumerGroupMetadata, offsets: dict[TopicPartition, OffsetAndMetadata], deadline_ms: int
    ) -> None:
        with self._lock:
            self._check(Call.SEND_OFFSETS)
            self._deadline_ms = deadline_ms
            self._contents.add_offsets(group, offsets)

    def prepare(self) -> None:
        """Leaves the transaction open for another process to end. All of it is acknowledged."""
        with self._lock:
            self._check(Call.PREPARE)
            self._move(State.PREPARED_TRANSACTION)

    def check_may_send(self) -> None:
        if self.state is not State.IN_TRANSACTION:
            with self._lock:
                self._check(Call.SEND)

    def wait(self, call: Call, timeout_s: float, check_alive: Callable[[], None], *, begun: float | None = None) -> None:
        """Waits for the end of a started call.

        Raises the transaction's error, or TransactionTimeoutError timeout_s after `begun` (monotonic; None: now). After that the
        same call can be repeated.
        """
        self._wait(lambda: self.state not in UNDER_WAY[call], call, timeout_s, check_alive, begun)
        with self._lock:
            self._pending = None
            if self._error is not None and not self._is_committed:  # otherwise the next call raises it: this one has succeeded
                self._raise_error()

    def wait_for_offsets(self, group_id: str, timeout_s: float, check_alive: Callable[[], None]) -> None:
        """Waits until the group's offsets are part of the transaction. Raises as `wait` does."""
        self._wait(
            lambda: self._error is not None or not self._contents.has_offsets(group_id), Call.SEND_OFFSETS, timeout_s, check_alive
        )
        with self._lock:
            if self._error is not None:
                self._raise_error()

    def _wait(
        self, done: Callable[[], bool], call: Call, timeout_s: float, check_alive: Callable[[], None], begun: float | None = None
    ) -> None:
        deadline = (time.monotonic() if begun is None else begun) + timeout_s
        wait_until(self._changes, done, deadline, lambda: self._late(call, timeout_s), check_alive)

    def _late(self, call: Call, timeout_s: float) -> TransactionTimeoutError:
        return TransactionTimeoutError(
            f"transactional id {self.transactional_id}: {call.value}() timed out after {timeout_s * 1000:,.0f} ms:"
            f" {self.blocked_reason}; call it again to wait for its end",
            transactional_id=self.transactional_id,
        )

    def _check(self, call: Call) -> None:
        if self.state is State.FATAL_ERROR or (self.state is State.ABORTABLE_ERROR and call is not Call.ABORT):
            self._raise_error()
        if self._pending not in (None, call) and self.state is not State.ABORTABLE_ERROR:
            raise UsageError(
                f"transactional id {self.transactional_id}: {call.value}() is not allowed yet: an earlier"
                f" {self._pending.value}() ended before its outcome was known; repeat that call first",
                transactional_id=self.transactional_id,
                state=self.state.name,
            )
        check_call(call, self.state, self.transactional_id)

    def _raise_error(self) -> None:
        error = self._error
        assert error is not None
        if self.state is not State.ABORTABLE_ERROR:
            raise error.with_traceback(None)  # raised repeatedly; otherwise the traceback would grow each time
        raise TransactionAbortableError(
            f"transactional id {self.transactional_id}: the transaction can only be aborted: {error}",
            **error.facts | {"transactional_id": self.transactional_id},
        ) from error

    # Sender thread: what may be sent

    @property
    def sends_as(self) -> ProducerIdAndEpoch | None:
        return self.producer if self.state in _SENDING else None

    def may_drain(self, queue: PartitionQueue) -> bool:
        """Returns whether the queue's partition is part of the transaction. If not, it will be added.

        Sequence numbers of an earlier epoch end here, because nothing of it is in flight any more.
        """
        if queue.sequences is not None and queue.sequences.producer != self.producer:
            queue.sequences = None
        return self._contents.may_drain(queue, self.version)

    def sending(self) -> None:
        """Called when records are sent: with version 2 the leaders add their partitions to the transaction."""
        self._contents.begun = True
        if self.first_sent is None:
            self.first_sent = time.monotonic()

    def unsent_error(self) -> KafkaSinkError | None:
        """Returns why unsent records will never be sent; None if they will."""
        with self._lock:
            if self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
                return self._error
            if self.state is State.ABORTING_TRANSACTION:
                text = f"transactional id {self.transactional_id}: the transaction was aborted before these records were sent"
                return TransactionAbortedError(text, transactional_id=self.transactional_id)
        return None

    # Sender thread: what to request

    def next_request(self, now_ms: int, is_flushed: Callable[[], bool]) -> TransactionRequest | None:
        """Returns the request that the state requires.

        `is_flushed` returns whether no record waits or is in flight, so that the transaction may end. It is called with the lock
        held once the transaction accepts no more records. A result from before a commit() would miss records sent just before
        that call.
        """
        with self._lock:
            adds = self.state in _SENDING and self._contents.is_waiting()  # records wait for that, whatever else waits
            if now_ms >= self._deadline_ms and not adds:
                return None
            ends = self.state in _ENDING and is_flushed()
            is_at_coordinator = not self._without_end and (self._contents.begun or self._contents.has_offsets())
            if ends and not is_at_coordinator:
                self._complete()
                ends = False
            return self._request(ends=ends)

    def _request(self, *, ends: bool) -> TransactionRequest | None:
        transactional_id = self.transactional_id
        if self.state is State.INITIALIZING:
            return requests.init_producer_id(transactional_id, self._timeout_ms, self.producer)
        if self.state in _SENDING and (request := self._contents.next_request(self.producer, self.version)) is not None:
            return request
        if ends:
            committed = self.state is State.COMMITTING_TRANSACTION
            if committed and self._contents.topics and not self._are_topics_checked:
                return requests.topic_ids(transactional_id, self._contents.topics, await_all=False)
            self._commit_is_asked = committed
            return requests.end_txn(transactional_id, self.producer, committed=committed, version=self.version)
        return None

    # Sender thread: results

    def done(self, request: TransactionRequest, body: Any) -> list[PartitionQueue]:
        """Handles a successful request. Returns the queues that may be sent now."""
        with self._lock:
            match request.api.key:
                case ApiKey.INIT_PRODUCER_ID:
                    self._initialized(body)
                case ApiKey.END_TXN:
                    self._ended(body)
                case ApiKey.METADATA if self.state is State.COMMITTING_TRANSACTION and not self._contents.is_waiting():
                    self._topics_checked(body)
            may_drain = self._contents.done(request, body)
            self._changes.notify_all()
            return may_drain

    def partly_done(self, request: TransactionRequest, body: Any) -> None:
        """Handles a response that accepted some of the offsets; the others are requested again."""
        if request.api.key is ApiKey.TXN_OFFSET_COMMIT:
            with self._lock:
                self._contents.done(request, body)

    def refused(self, request: TransactionRequest, reaction: Reaction, error: KafkaSinkError) -> None:
        """Handles a rejection that no retry can cure."""
        with self._lock:
            if self._is_aborted_by(request, reaction, error):
                self._complete()
            elif reaction in _REPEATABLE and self.state is State.INITIALIZING:
                self._move(State.UNINITIALIZED, error)
                self.producer = NO_PRODUCER
            elif reaction in _ABORTABLE:
                self._without_end = self._without_end or reaction is Reaction.ABORTABLE_WITHOUT_END
                self._abortable(error)
            else:
                self._fatal(error)
            self._changes.notify_all()

    def _is_aborted_by(self, request: TransactionRequest, reaction: Reaction, error: KafkaSinkError) -> bool:
        """Returns whether there is nothing to abort: the id is forgotten, or the transaction never reached the coordinator."""
        if request.api.key is not ApiKey.END_TXN or self.state is not State.ABORTING_TRANSACTION:
            return False
        if reaction in _ABORTABLE:
            self._without_end = True
        unknown = error.facts.get("error_code") == ErrorCode.INVALID_TXN_STATE and not self._contents.is_known
        return reaction in _ABORTABLE or (self.version < 2 and unknown)

    def failed(self, error: KafkaSinkError) -> None:
        """Called when a batch of the transaction failed or expired: the transaction can only be aborted."""
        with self._lock:
            self._abortable(error)
            self._changes.notify_all()

    def missed(self, error: KafkaSinkError) -> None:
        """Called when a record of the open transaction will not be sent: the transaction can only be aborted. From any thread.

        Has no effect once the coordinator was asked to commit: at that time no record of the transaction waited or was in flight,
        so this record is not one of them.
        """
        with self._lock:
            if self.state in _SENDING and not self._commit_is_asked:
                self._abortable(error)
                self._changes.notify_all()

    def dropped(self) -> None:
        """Called when an abort drops a numbered batch: with version 1 the next transaction cannot continue its numbers."""
        self._new_epoch = True

    def unanswered(self, request: TransactionRequest) -> None:
        """Called when a request got no response, so a broker may still carry it out after it was sent again.

        With version 1 all transactions of an epoch look the same to the broker: a late EndTxn would end the next one, a late
        AddPartitionsToTxn would open one that never ends (see KIP-890). So the next transaction gets its own epoch, as it
        always does with version 2.
        """
        if request.api.key is not ApiKey.INIT_PRODUCER_ID:
            self._new_epoch = True

    def fatal(self, error: KafkaSinkError) -> None:
        """Called when this manager can do nothing more under its id."""
        with self._lock:
            self._fatal(error)
            self._changes.notify_all()

    def rejected(self, error: AuthenticationError) -> None:
        """Called when a coordinator, or the broker that names it, rejected the login.

        Before a transaction the call can be repeated. An open transaction can only be aborted. One that is being ended cannot be
        ended by this producer. Java's TransactionManager.authenticationFailed ends the producer in each of these cases.
        """
        with self._lock:
            if self.state is State.INITIALIZING:
                self._move(State.UNINITIALIZED, error)
                self.producer = NO_PRODUCER
            elif self.state in _SENDING and not self._commit_is_asked:
                self._abortable(error)
            elif self.state in _ENDING:
                self._fatal(self._not_ended(error))
            self._changes.notify_all()

    def _not_ended(self, error: AuthenticationError) -> AuthenticationError:
        outcome = (
            "it is not known whether the transaction was committed"
            if self.state is State.COMMITTING_TRANSACTION
            else "the transaction could not be aborted and stays open until transaction.timeout.ms"
        )
        text = f"transactional id {self.transactional_id}: {outcome}: {error.message}"
        return AuthenticationError(text, **error.facts | {"transactional_id": self.transactional_id})

    def close(self, now_ms: int, timeout_ms: int) -> bool:
        """Begins to abort an open transaction, once, because the producer is closing. Returns whether nothing is left to do."""
        with self._lock:
            if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                logger.info(
                    "transactional id %s: aborting the open transaction, because its producer is closing", self.transactional_id
                )
                self._move(State.ABORTING_TRANSACTION)
                self._contents.forget_waiting()
            if not self._closing:
                self._closing, self._deadline_ms = True, now_ms + timeout_ms
            return self.state not in _ENDING or now_ms >= self._deadline_ms

    def _abortable(self, error: KafkaSinkError) -> None:
        self._new_epoch = True
        self._contents.forget_waiting()
        if self.state in _SENDING:
            self._move(State.ABORTABLE_ERROR, error)

    def _fatal(self, error: KafkaSinkError) -> None:
        self._contents.forget_waiting()
        if State.FATAL_ERROR in NEXT[self.state]:
            self._move(State.FATAL_ERROR, error)

    def _move(self, state: State, error: KafkaSinkError | None = None) -> None:
        if state not in NEXT[self.state]:
            raise UsageError(f"a transaction that is {self.state.name} cannot become {state.name}")
        logger.debug("transactional id %s: %s, then %s", self.transactional_id, self.state.name, state.name)
        self.state = state
        self._error = error

    def _complete(self) -> None:
        new_epoch = (self._new_epoch and self.version < 2) or self._without_end
        # A cluster that was upgraded or downgraded: the next transaction has the other version and its own epoch.
        new_epoch = new_epoch or self.version != self._agreed_version()
        self._new_epoch = self._without_end = False
        self._is_committed = self.state is State.COMMITTING_TRANSACTION
        self._contents.clear(committed=self._is_committed)
        self._move(State.INITIALIZING if new_epoch and not self.is_for_others else State.READY)
        self._changes.notify_all()

    def _agreed_version(self) -> int:
        return 2 if self._finalized_feature(FEATURE) >= 2 else 1

    # Contents of each response

    def _initialized(self, body: Any) -> None:
        """Takes the producer id and epoch. A producer that asked for its next epoch and gets another id was forgotten: the
        coordinator does not say so, and its own id may have been another producer's since.
        """
        asked = self.producer
        if asked.producer_id not in (NO_PRODUCER.producer_id, body.producer_id) and asked.epoch < _FIRST_OF_LAST_EPOCHS:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            text = f"transactional id {self.transactional_id}: {code.name}; {FORGOTTEN}"
            self._fatal(TransactionError(text, transactional_id=self.transactional_id, error_code=code, error=code.name))
            return
        self.producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch, transactional=True)
        self.version = self._agreed_version()
        if self.state is State.INITIALIZING:
            self._move(State.READY)

    def _topics_checked(self, body: Any) -> None:
        """Fails the transaction if a topic was deleted since: the coordinator would commit it without the topic's records."""
        self._are_topics_checked = True
        if gone := replaced(self._contents.topic_ids().items(), body):
            self._contents.forget_ids(gone)
            text = f"transactional id {self.transactional_id}: {records_are_gone(gone)}"
            self._abortable(TransactionError(text, transactional_id=self.transactional_id, topic=min(gone)))

    def _ended(self, body: Any) -> None:
        """Takes the next epoch from EndTxn v5, or another producer id if the epochs are used up (KIP-890)."""
        if body.producer_id >= 0:
            self.producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch, transactional=True)
        if self.state in _ENDING:
            self._complete()


_LEADS_TO = {Call.INIT: State.INITIALIZING, Call.COMMIT: State.COMMITTING_TRANSACTION, Call.ABORT: State.ABORTING_TRANSACTION}
_ENDING = frozenset({State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION})
_ABORTABLE = frozenset({Reaction.ABORTABLE, Reaction.ABORTABLE_WITHOUT_END})
_REPEATABLE = _ABORTABLE | {Reaction.NOT_ALLOWED}
# From here on a coordinator may return another producer id because the epochs are used up: an abort can take two more.
_FIRST_OF_LAST_EPOCHS = MAX_EPOCH - 3
