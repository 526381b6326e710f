"""The state of a transactional id and its transitions (Kafka's TransactionMetadata and TransactionState). Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.protocol.error_codes import ErrorCode


class TransactionState(IntEnum):
    """The states, with their values in the transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def state_name(self) -> str:
        """The name in DescribeTransactions and ListTransactions, such as `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState

VALID_PREVIOUS_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # Also from states without a transaction: with version 2, an abort of nothing bumps the epoch too (KIP-890).
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The allowed previous states by new state. PREPARE_EPOCH_FENCE is passed through under a lock and never stored: see `fence`."""

PENDING: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The outcome is decided and its markers are being written. Clients wait until they are."""

IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open. Only these ids expire."""

BY_NAME: Final = {state.state_name: state for state in TransactionState}


NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1
LAST_EPOCH_GIVEN: Final = MAX_EPOCH - 1
"""The last epoch. No producer gets it, because the coordinator needs it to fence the previous one."""
TRANSACTION_VERSION_2: Final = 2
"""The first feature level at which each end of a transaction bumps the epoch (KIP-890, part 2)."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


class IllegalTransitionError(Exception):
    """A transition that no request may cause. The client gets UNKNOWN_SERVER_ERROR, as for Kafka's IllegalStateException."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of a transactional id. Times are in ms since 1970, or -1 for none.

    previous_producer_id: the one before the last change. next_producer_id: the id given to a producer whose epochs ran out, from
    PrepareCommit or PrepareAbort until the old one's markers are written. last_producer_epoch: the epoch before the last bump
    that the producer requested, which identifies a repeated request. client_version: the transaction version of the client that
    requested the last change.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_update_ms: int = -1
    client_version: int = 0

    @property
    def is_pending(self) -> bool:
        return self.state in PENDING

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH_GIVEN

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def initialized(
        self, producer: ProducerIdAndEpoch, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Returns the state after an InitProducerId."""
        return self._became(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
        )

    def with_partitions(self, added: frozenset[TopicPartition], client_version: int, now_ms: int) -> TransactionMetadata:
        """Returns the state with more partitions. A transaction starts with its first one."""
        start_ms = now_ms if self.state in IDLE else self.start_ms
        partitions = self.partitions | added
        return self._became(
            TransactionState.ONGOING, now_ms, partitions=partitions, start_ms=start_ms, client_version=client_version
        )

    def prepared(self, state: TransactionState, client_version: int, next_producer_id: int, now_ms: int) -> TransactionMetadata:
        """Returns the state with a decided outcome. With version 2, markers carry the next epoch, so late records are refused."""
        bumps = client_version >= TRANSACTION_VERSION_2
        return self._became(
            state,
            now_ms,
            producer_epoch=self.producer_epoch + 1 if bumps else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=now_ms if self.state in IDLE else self.start_ms,
            client_version=client_version,
        )

    def fenced(self, server_version: int, now_ms: int) -> TransactionMetadata:
        """Returns the state to abort with, by an epoch that its producer does not have.

        It combines PrepareEpochFence and PrepareAbort. With version 2 the last epoch is kept, as in Kafka 4.1 (KAFKA-19367):
        there is one bump, as for an end.
        """
        if server_version >= TRANSACTION_VERSION_2:
            return self.prepared(TransactionState.PREPARE_ABORT, server_version, NO_PRODUCER_ID, now_ms)
        bumped = dataclasses.replace(self, producer_epoch=self.producer_epoch + 1, last_producer_epoch=NO_PRODUCER_EPOCH)
        return bumped.prepared(TransactionState.PREPARE_ABORT, 0, NO_PRODUCER_ID, now_ms)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Returns the state after the markers are written."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        moves_on = self.next_producer_id != NO_PRODUCER_ID
        return self._became(
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=self.next_producer_id if moves_on else self.producer_id,
            producer_epoch=0 if moves_on else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def _became(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise IllegalTransitionError(f"{self.transactional_id!r} cannot change from {self.state.name} to {state.name}")
        new = dataclasses.replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)
        if not 0 <= new.producer_epoch <= MAX_EPOCH:
            raise IllegalTransitionError(f"{self.transactional_id!r} has no epoch after {self.producer_epoch}")
        return new


def initialized(
    metadata: TransactionMetadata,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    next_producer_id: Callable[[], int],
) -> TransactionMetadata | None:
    """Returns the state to store and answer; None: an open transaction must be aborted first.

    expected: the producer's id and epoch if it asks for the next epoch. Raises CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
    """
    if metadata.is_pending:
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _knows_producer(metadata, expected):
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    if metadata.state is TransactionState.ONGOING:
        return None
    last_epoch = NO_PRODUCER_EPOCH if expected is None else metadata.producer_epoch
    is_current = expected is None or metadata.producer_epoch in {expected.producer_epoch, NO_PRODUCER_EPOCH}
    if metadata.is_epoch_exhausted:
        if expected is not None and expected.producer_epoch != metadata.producer_epoch:
            # A producer that is fenced twice; Kafka throws an IllegalStateException.
            text = f"Cannot allocate any more producer epochs for producerId {metadata.producer_id}"
            raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        new = ProducerIdAndEpoch(next_producer_id(), 0)
    elif is_current:
        new = ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch + 1)
    elif expected is not None and expected.producer_epoch == metadata.last_producer_epoch:
        # It was answered before and gets the same response.
        new, last_epoch = metadata.producer, metadata.last_producer_epoch
    else:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    return metadata.initialized(new, last_epoch, timeout_ms, now_ms)


def _knows_producer(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    if metadata.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == metadata.producer_id:
        return True
    # Its earlier request used up the epochs, and it did not receive its new id.
    return expected.producer_id == metadata.previous_producer_id and expected.producer_epoch >= LAST_EPOCH_GIVEN


class Outcome(Enum):
    PREPARE = "the outcome is stored"
    DONE = "it is already stored: the same response again"
    INVALID = "INVALID_TXN_STATE"


_O = Outcome
_COMMIT, _ABORT = True, False
_RETRY, _CURRENT = True, False

VERSION_1: Final[Mapping[tuple[TransactionState, bool], Outcome]] = {
    (_S.ONGOING, _COMMIT): _O.PREPARE,
    (_S.ONGOING, _ABORT): _O.PREPARE,
    (_S.EMPTY, _COMMIT): _O.INVALID,
    (_S.EMPTY, _ABORT): _O.INVALID,
    (_S.COMPLETE_COMMIT, _COMMIT): _O.DONE,
    (_S.COMPLETE_COMMIT, _ABORT): _O.INVALID,
    (_S.COMPLETE_ABORT, _COMMIT): _O.INVALID,
    (_S.COMPLETE_ABORT, _ABORT): _O.DONE,
}
"""Outcomes by state and commit or abort, for the current epoch. A retry cannot be told from the end of the next transaction."""

VERSION_2: Final[Mapping[tuple[TransactionState, bool, bool], Outcome]] = {
    (_S.ONGOING, _COMMIT, _CURRENT): _O.PREPARE,
    (_S.ONGOING, _ABORT, _CURRENT): _O.PREPARE,
    (_S.EMPTY, _COMMIT, _CURRENT): _O.INVALID,
    (_S.EMPTY, _ABORT, _CURRENT): _O.PREPARE,
    (_S.COMPLETE_COMMIT, _COMMIT, _RETRY): _O.DONE,
    (_S.COMPLETE_COMMIT, _COMMIT, _CURRENT): _O.INVALID,
    (_S.COMPLETE_COMMIT, _ABORT, _RETRY): _O.INVALID,
    (_S.COMPLETE_COMMIT, _ABORT, _CURRENT): _O.PREPARE,
    (_S.COMPLETE_ABORT, _COMMIT, _RETRY): _O.INVALID,
    (_S.COMPLETE_ABORT, _COMMIT, _CURRENT): _O.INVALID,
    (_S.COMPLETE_ABORT, _ABORT, _RETRY): _O.DONE,
    (_S.COMPLETE_ABORT, _ABORT, _CURRENT): _O.PREPARE,
}
"""The same, also by whether the epoch is the one before the bump (a retry). Anything else is PRODUCER_FENCED."""


def ended(
    metadata: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    committed: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: Callable[[], int],
) -> TransactionMetadata | None:
    """Returns the state to store; None: it is already stored. Raises Kafka's errors."""
    version_2 = client_version >= TRANSACTION_VERSION_2
    outcome = _version_2(metadata, producer, committed) if version_2 else _version_1(metadata, producer, committed)
    if outcome is Outcome.DONE:
        return None
    if outcome is Outcome.INVALID:
        raise ApiException(ErrorCode.INVALID_TXN_STATE)
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    successor = next_producer_id() if version_2 and metadata.is_epoch_exhausted else NO_PRODUCER_ID
    return metadata.prepared(state, TRANSACTION_VERSION_2 if version_2 else 0, successor, now_ms)


def _version_1(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, committed: bool) -> Outcome:
    if metadata.producer_id != producer.producer_id:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer.producer_epoch:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    if metadata.is_pending:
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
    return VERSION_1[metadata.state, committed]


def _version_2(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, committed: bool) -> Outcome:
    if metadata.is_pending:
        # Checked first: the producer may have an id that takes effect only when the markers are written.
        raise ApiException(ErrorCode.CONCURRENT_TRANSACTIONS)
    # A retry of the end that used up the epochs, so another producer id follows.
    had_last_epoch = metadata.previous_producer_id == producer.producer_id and (
        producer.producer_epoch == LAST_EPOCH_GIVEN and metadata.producer_epoch == 0
    )
    if metadata.producer_id != producer.producer_id and not had_last_epoch:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = had_last_epoch or metadata.producer_epoch == producer.producer_epoch + 1
    if not is_retry and metadata.producer_epoch != producer.producer_epoch:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    outcome = VERSION_2.get((metadata.state, committed, is_retry))
    if outcome is None:
        raise ApiException(ErrorCode.PRODUCER_FENCED)
    return outcome
