"""The state of a transactional id, and what it becomes (Kafka's TransactionMetadata and TransactionState)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from spark_kafka_sink.broker.log.log_types import TopicPartition


class TransactionState(IntEnum):
    """The values are those of the transaction log."""

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
        """As DescribeTransactions and ListTransactions say it: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState

VALID_PREVIOUS_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # From those that have no transaction too: with version 2 an abort of nothing bumps the epoch all the same (KIP-890).
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""By the state that is to be reached. PREPARE_EPOCH_FENCE is passed through under a lock and never stored: see `fence`."""

PENDING: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The outcome is decided and its markers are being written; until they are, everybody waits."""

IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction runs. Only these expire."""

BY_NAME: Final = {state.state_name: state for state in TransactionState}


NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1
LAST_EPOCH_GIVEN: Final = MAX_EPOCH - 1
"""No producer gets MAX_EPOCH: the coordinator needs it to fence the one before."""
TRANSACTION_VERSION_2: Final = 2
"""From this feature level on each end of a transaction bumps the epoch (KIP-890, part 2)."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


class IllegalTransitionError(Exception):
    """A state that no request may lead to; a client is told UNKNOWN_SERVER_ERROR, as by Kafka's IllegalStateException."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """Times in ms since 1970, -1 for none.

    previous_producer_id: the one before the last change. next_producer_id: what a producer whose epochs ran out was given, from
    PrepareCommit or PrepareAbort until the markers of the old one are written. last_producer_epoch: the epoch before the last
    bump that its producer asked for, which makes a repeated request recognizable. client_version: the transaction version of
    the client that asked for the last change.
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
        """The answer to an InitProducerId."""
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
        """A transaction starts with its first partition."""
        start_ms = now_ms if self.state in IDLE else self.start_ms
        partitions = self.partitions | added
        return self._became(
            TransactionState.ONGOING, now_ms, partitions=partitions, start_ms=start_ms, client_version=client_version
        )

    def prepared(self, state: TransactionState, client_version: int, next_producer_id: int, now_ms: int) -> TransactionMetadata:
        """The outcome is decided. With version 2 the markers carry the next epoch, so that what comes late is refused."""
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
        """To be aborted, by an epoch that its producer does not have (PrepareEpochFence and PrepareAbort in one step).

        With version 2 the last epoch is kept, as Kafka 4.1 does (KAFKA-19367): one bump, the same as of an end.
        """
        if server_version >= TRANSACTION_VERSION_2:
            return self.prepared(TransactionState.PREPARE_ABORT, server_version, NO_PRODUCER_ID, now_ms)
        bumped = dataclasses.replace(self, producer_epoch=self.producer_epoch + 1, last_producer_epoch=NO_PRODUCER_EPOCH)
        return bumped.prepared(TransactionState.PREPARE_ABORT, 0, NO_PRODUCER_ID, now_ms)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Its markers are written."""
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
            raise IllegalTransitionError(f"{self.transactional_id!r} cannot go from {self.state.name} to {state.name}")
        new = dataclasses.replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)
        if not 0 <= new.producer_epoch <= MAX_EPOCH:
            raise IllegalTransitionError(f"{self.transactional_id!r} has no epoch after {self.producer_epoch}")
        return new
