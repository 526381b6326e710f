"""One transactional id as its producer sees it: its state, what belongs to the open transaction, and what is to be asked next."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Condition, Lock
from typing import Any

from spark_kafka_sink.errors import (
    AuthenticationError,
    KafkaSinkError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionTimeoutError,
    UsageError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue
from spark_kafka_sink.producer.accumulator.sequences import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.lifecycle import wait_until
from spark_kafka_sink.producer.transactions import requests
from spark_kafka_sink.producer.transactions.offsets import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from spark_kafka_sink.producer.transactions.reactions import Reaction
from spark_kafka_sink.producer.transactions.requests import Contents, TransactionRequest
from spark_kafka_sink.producer.transactions.states import ALLOWED_IN, NEXT, UNDER_WAY, Call, State, check_call, check_move
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

FEATURE = "transaction.version"
_SENDING = frozenset({State.IN_TRANSACTION, State.COMMITTING_TRANSACTION})


class TransactionManager:
    """Java's TransactionManager, without the sequence numbers.

    Threads: the program's make calls and wait for their end; the sender's thread asks for the next request and tells the answers.
    `_changed` guards the state, what calls are waited for, and the offsets. What the transaction consists of belongs to the
    sender's thread.
    """

    def __init__(
        self, transactional_id: str, timeout_ms: int, finalized_feature: Callable[[str], int], *, single: bool = False
    ) -> None:
        """timeout_ms: transaction.timeout.ms. single: there will be one transaction only, so no epoch is asked for after it."""
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._finalized_feature = finalized_feature
        self._single = single
        self._changed = Condition(Lock())
        self._state = State.UNINITIALIZED
        self._error: KafkaSinkError | None = None  # the first, where the state is one of an error
        self._pending: Call | None = None  # whose end nobody has seen yet
        self._commit_is_asked = False  # EndTxn may be on its way: nothing more can keep the transaction from being committed
        self._is_committed = False  # what is called has done that, whatever comes of the epoch for the next transaction
        self._closing = False
        self._deadline_ms = 0  # when what was called is asked for no more; monotonic
        self.producer = NO_PRODUCER
        self.version = 1  # of transactions: 2 is KIP-890
        self.first_sent: float | None = None  # when the first records of the transaction went out, on time.monotonic's clock
        self.blocked_reason = "the sender's thread has not come to it yet"  # that a call takes so long
        self._contents = Contents(transactional_id)
        # The sender's thread's
        self._new_epoch = False  # needed before the next transaction
        self._without_end = False  # the coordinator would not understand EndTxn

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_for_others(self) -> bool:
        """Whether another process may end the transaction, which takes newer brokers (verification.py)."""
        return self._single

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._state in ALLOWED_IN[Call.ABORT]

    # Calls

    def start(self, call: Call, deadline_ms: int) -> None:
        """Begin init_transactions, commit or abort, or go on with it until a later deadline. Raises why it cannot be done."""
        with self._changed:
            self._deadline_ms = deadline_ms
            if self._pending is call:
                return
            self._check(call)
            self._move(_LEADS_TO[call])
            self._pending, self._is_committed, self._commit_is_asked = call, False, False
            if call is Call.ABORT:
                self._contents.forget_waiting()

    def begin(self) -> None:
        with self._changed:
            self._check(Call.BEGIN)
            self._move(State.IN_TRANSACTION)
            self.first_sent = None

    def add_offsets(
        self, group: ConsumerGroupMetadata, offsets: dict[TopicPartition, OffsetAndMetadata], deadline_ms: int
    ) -> None:
        """Adds offsets to be committed with the transaction."""
        with self._changed:
            self._check(Call.SEND_OFFSETS)
            self._deadline_ms = deadline_ms
            self._contents.add_offsets(group, offsets)

    def prepare(self) -> None:
        """The transaction stays open for somebody else to end; all of it is acked."""
        with self._changed:
            self._check(Call.PREPARE)
            self._move(State.PREPARED_TRANSACTION)

    def check_may_send(self) -> None:
        """Raise why no record belongs to this transaction, unless one is open."""
        if self._state is not State.IN_TRANSACTION:
            with self._changed:
                self._check(Call.SEND)

    def wait(self, call: Call, timeout_s: float, check_alive: Callable[[], None], *, begun: float | None = None) -> None:
        """Return at the end of a call that was started. Raises the error the transaction has come to; TransactionTimeoutError
        timeout_s after `begun` (monotonic; None: now), and then the same call, made again, goes on."""
        self._wait(lambda: self._state not in UNDER_WAY[call], call, timeout_s, check_alive, begun)
        with self._changed:
            self._pending = None
            if self._error is not None and not self._is_committed:  # else the next call says so: this one was done
                self._raise_error()

    def wait_for_offsets(self, group_id: str, timeout_s: float, check_alive: Callable[[], None]) -> None:
        """Return when the group's offsets are part of the transaction; otherwise as `wait`."""
        self._wait(
            lambda: self._error is not None or not self._contents.has_offsets(group_id), Call.SEND_OFFSETS, timeout_s, check_alive
        )
        with self._changed:
            if self._error is not None:
                self._raise_error()

    def _wait(
        self,
        done: Callable[[], bool],
        call: Call,
        timeout_s: float,
        check_alive: Callable[[], None],
        begun: float | None = None,
    ) -> None:
        deadline = (time.monotonic() if begun is None else begun) + timeout_s
        wait_until(self._changed, done, deadline, lambda: self._late(call, timeout_s), check_alive)

    def _late(self, call: Call, timeout_s: float) -> TransactionTimeoutError:
        return TransactionTimeoutError(
            f"transactional id {self.transactional_id}: {call.value}() has not ended within {timeout_s * 1000:,.0f} ms:"
            f" {self.blocked_reason}; call it again to wait for its end",
            transactional_id=self.transactional_id,
        )

    def _check(self, call: Call) -> None:
        if self._state is State.FATAL_ERROR or (self._state is State.ABORTABLE_ERROR and call is not Call.ABORT):
            self._raise_error()
        if self._pending not in (None, call) and self._state is not State.ABORTABLE_ERROR:
            raise UsageError(
                f"transactional id {self.transactional_id}: {call.value}() is not allowed yet: {self._pending.value}() has ended"
                " before its outcome was known; call that again",
                transactional_id=self.transactional_id,
                state=self._state.name,
            )
        check_call(call, self._state, self.transactional_id)

    def _raise_error(self) -> None:
        error = self._error
        assert error is not None
        if self._state is not State.ABORTABLE_ERROR:
            raise error.with_traceback(None)  # raised again and again: each time it would become longer
        raise TransactionAbortableError(
            f"transactional id {self.transactional_id}: the transaction can only be aborted: {error}",
            **error.facts | {"transactional_id": self.transactional_id},
        ) from error

    # The sender's thread: what may be sent

    @property
    def sends_as(self) -> ProducerIdAndEpoch | None:
        """Who batches are from; None when none may be sent."""
        return self.producer if self._state in _SENDING else None

    def may_drain(self, queue: PartitionQueue) -> bool:
        """Whether the queue's partition is part of the transaction; otherwise it will be asked for.

        The numbers of another epoch end here: nothing of it is on its way any more.
        """
        if queue.sequences is not None and queue.sequences.producer != self.producer:
            queue.sequences = None
        return self._contents.may_drain(queue, self.version)

    def sending(self) -> None:
        """Records go out: with version 2 the leaders add their partitions to the transaction."""
        self._contents.begun = True
        if self.first_sent is None:
            self.first_sent = time.monotonic()

    def unsent_error(self) -> KafkaSinkError | None:
        """Why what was not sent never will be."""
        with self._changed:
            if self._state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
                return self._error
            if self._state is State.ABORTING_TRANSACTION:
                text = f"transactional id {self.transactional_id}: the transaction was aborted before these records were sent"
                return TransactionAbortedError(text, transactional_id=self.transactional_id)
        return None

    # The sender's thread: what is to be asked

    def next_request(self, now_ms: int, is_flushed: Callable[[], bool]) -> TransactionRequest | None:
        """Returns what the state asks for.

        is_flushed: tells whether no record is waiting or on its way, so that the transaction may end. It is asked when the
            transaction takes no more records, and with the lock held, so that this stays so: an answer from before a commit()
            would know nothing of what was sent just before that.
        """
        with self._changed:
            adds = self._state in _SENDING and self._contents.is_waiting()  # records wait for that, whoever else does
            if now_ms >= self._deadline_ms and not adds:
                return None
            ends = self._state in _ENDING and is_flushed()
            if ends and not self._is_at_coordinator():
                self._complete()
                ends = False
            return self._request(ends=ends)

    def _is_at_coordinator(self) -> bool:
        """Whether there is something to be ended there."""
        return not self._without_end and (self._contents.begun or self._contents.has_offsets())

    def _request(self, *, ends: bool) -> TransactionRequest | None:
        transactional_id = self.transactional_id
        if self._state is State.INITIALIZING:
            return requests.init_producer_id(transactional_id, self._timeout_ms, self.producer)
        if self._state in _SENDING and (request := self._contents.next_request(self.producer, self.version)) is not None:
            return request
        if ends:
            committed = self._commit_is_asked = self._state is State.COMMITTING_TRANSACTION
            return requests.end_txn(transactional_id, self.producer, committed=committed, version=self.version)
        return None

    # The sender's thread: what has happened

    def done(self, request: TransactionRequest, body: Any) -> list[PartitionQueue]:
        """The coordinator did what was asked. Returned are the queues that may be sent now."""
        with self._changed:
            match request.api.key:
                case ApiKey.INIT_PRODUCER_ID:
                    self._initialized(body)
                case ApiKey.END_TXN:
                    self._ended(body)
            may_drain = self._contents.done(request, body)
            self._changed.notify_all()
            return may_drain

    def partly_done(self, request: TransactionRequest, body: Any) -> None:
        """Some of the offsets are in; the others are to be asked for again."""
        if request.api.key is ApiKey.TXN_OFFSET_COMMIT:
            with self._changed:
                self._contents.done(request, body)

    def refused(self, request: TransactionRequest, reaction: Reaction, error: KafkaSinkError) -> None:
        """An answer that no repetition betters."""
        with self._changed:
            if self._is_aborted_by(request, reaction, error):
                self._complete()
            elif reaction in _REPEATABLE and self._state is State.INITIALIZING:
                self._move(State.UNINITIALIZED, error)
                self.producer = NO_PRODUCER
            elif reaction in _ABORTABLE:
                self._without_end = self._without_end or reaction is Reaction.ABORTABLE_WITHOUT_END
                self._abortable(error)
            else:
                self._fatal(error)
            self._changed.notify_all()

    def _is_aborted_by(self, request: TransactionRequest, reaction: Reaction, error: KafkaSinkError) -> bool:
        """Whether there is nothing to be aborted: the id's mapping is gone, or the transaction never came to the coordinator."""
        if request.api.key is not ApiKey.END_TXN or self._state is not State.ABORTING_TRANSACTION:
            return False
        if reaction in _ABORTABLE:
            self._without_end = True
        unknown = error.facts.get("error_code") == ErrorCode.INVALID_TXN_STATE and not self._contents.is_known
        return reaction in _ABORTABLE or (self.version < 2 and unknown)

    def failed(self, error: KafkaSinkError) -> None:
        """A batch of the transaction failed or expired: it can only be aborted."""
        with self._changed:
            self._abortable(error)
            self._changed.notify_all()

    def missed(self, error: KafkaSinkError) -> None:
        """A record of the open transaction will not be sent: it can only be aborted. From any thread.

        Not once the coordinator is asked to commit: that was when no record of it was waiting or on its way, so this is none of
        its records, and what is said of it then is the coordinator's to say.
        """
        with self._changed:
            if self._state in _SENDING and not self._commit_is_asked:
                self._abortable(error)
                self._changed.notify_all()

    def dropped(self) -> None:
        """A batch that has its numbers is given up by an abort: with version 1 the next transaction cannot go on from them."""
        self._new_epoch = True

    def unanswered(self, request: TransactionRequest) -> None:
        """Nobody knows whether a broker has got the request; it is asked again, and the broker may come to the first one later.

        With version 1 all transactions of an epoch are one to it: that EndTxn would end the next one, that AddPartitionsToTxn
        open one that nobody ends (what KIP-890 is about). So the next has an epoch of its own; with version 2 it has anyway.
        """
        if request.api.key is not ApiKey.INIT_PRODUCER_ID:
            self._new_epoch = True

    def fatal(self, error: KafkaSinkError) -> None:
        """Nothing more can be done under this id, by this manager."""
        with self._changed:
            self._fatal(error)
            self._changed.notify_all()

    def rejected(self, error: AuthenticationError) -> None:
        """The coordinator, or whoever is to name it, rejected the login. Java's TransactionManager.authenticationFailed, which
        ends the producer in each of these cases.

        Before the transaction the call can be repeated. A transaction that is open can only be aborted. One that is being ended
        cannot be ended from here.
        """
        with self._changed:
            if self._state is State.INITIALIZING:
                self._move(State.UNINITIALIZED, error)
                self.producer = NO_PRODUCER
            elif self._state in _SENDING and not self._commit_is_asked:
                self._abortable(error)
            elif self._state in _ENDING:
                self._fatal(self._not_ended(error))
            self._changed.notify_all()

    def _not_ended(self, error: AuthenticationError) -> AuthenticationError:
        outcome = (
            "it is not known whether the transaction was committed"
            if self._state is State.COMMITTING_TRANSACTION
            else "the transaction could not be aborted, and stays open until transaction.timeout.ms"
        )
        text = f"transactional id {self.transactional_id}: {outcome}: {error.message}"
        return AuthenticationError(text, **error.facts | {"transactional_id": self.transactional_id})

    def close(self, now_ms: int, timeout_ms: int) -> bool:
        """The producer is closing: begin to abort an open transaction, once. True when nothing is left to be done."""
        with self._changed:
            if self._state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                logger.info(
                    "transactional id %s: the open transaction is aborted, as its producer is closing", self.transactional_id
                )
                self._move(State.ABORTING_TRANSACTION)
                self._contents.forget_waiting()
            if not self._closing:
                self._closing, self._deadline_ms = True, now_ms + timeout_ms
            return self._state not in _ENDING or now_ms >= self._deadline_ms

    def _abortable(self, error: KafkaSinkError) -> None:
        self._new_epoch = True
        self._contents.forget_waiting()
        if self._state in _SENDING:
            self._move(State.ABORTABLE_ERROR, error)

    def _fatal(self, error: KafkaSinkError) -> None:
        self._contents.forget_waiting()
        if State.FATAL_ERROR in NEXT[self._state]:
            self._move(State.FATAL_ERROR, error)

    def _move(self, state: State, error: KafkaSinkError | None = None) -> None:
        check_move(self._state, state)
        logger.debug("transactional id %s: %s, then %s", self.transactional_id, self._state.name, state.name)
        self._state = state
        self._error = error

    def _complete(self) -> None:
        """The transaction has ended, whichever way."""
        new_epoch = (self._new_epoch and self.version < 2) or self._without_end
        # A cluster that was upgraded, or went back: the next transaction is of the other version, with an epoch of its own.
        new_epoch = new_epoch or self.version != self._agreed_version()
        self._new_epoch = self._without_end = False
        self._is_committed = self._state is State.COMMITTING_TRANSACTION
        self._contents.clear()
        self._move(State.INITIALIZING if new_epoch and not self._single else State.READY)
        self._changed.notify_all()

    def _agreed_version(self) -> int:
        return 2 if self._finalized_feature(FEATURE) >= 2 else 1

    # What each answer brings

    def _initialized(self, body: Any) -> None:
        self.producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch, transactional=True)
        self.version = self._agreed_version()
        if self._state is State.INITIALIZING:
            self._move(State.READY)

    def _ended(self, body: Any) -> None:
        """With EndTxn v5 the epoch was bumped, or there is another producer id because the epochs are used up (KIP-890)."""
        if body.producer_id >= 0:
            self.producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch, transactional=True)
        if self._state in _ENDING:
            self._complete()


_LEADS_TO = {
    Call.INIT: State.INITIALIZING,
    Call.COMMIT: State.COMMITTING_TRANSACTION,
    Call.ABORT: State.ABORTING_TRANSACTION,
}
_ENDING = frozenset({State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION})
_ABORTABLE = frozenset({Reaction.ABORTABLE, Reaction.ABORTABLE_WITHOUT_END})
_REPEATABLE = _ABORTABLE | {Reaction.NOT_ALLOWED}
