"""Proofs of a transaction's outcome: the responses of EndTxn and DescribeTransactions, and markers in topics. Pure.

A transaction of epoch e leaves this state at its coordinator (TransactionMetadata of Kafka 4.1, and measured):

    ended by              version 1                 version 2
    EndTxn(commit)        PrepareCommit at e        PrepareCommit at e + 1
                          CompleteCommit at e       CompleteCommit at e + 1
    EndTxn(abort)         ...Abort at e             ...Abort at e + 1
    its time-out          ...Abort at e + 1         ...Abort at e + 1
    InitProducerId        the same, and then Empty one epoch later

With version 2 the last epoch of a producer id (32,766) leaves a Complete... state with another producer id, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.error_codes import ErrorCode


class Outcome(StrEnum):
    """The outcome of a transaction that was to be committed.

    UNKNOWN: nothing is proved. Its rows are never written again unless an operator decides so.
    """

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The answer of DescribeTransactions about a transactional id that the coordinator knows.

    Attributes:
        state: Kafka's name of the state, such as "Ongoing".
        start_time_ms: ms since the epoch on the broker's clock; -1 if no transaction is open.
    """

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[tuple[str, str], ...] = ()


# EndTxn

# By error code: the lowest transaction version for which it is a proof, and what it proves. All other codes prove nothing: an id
# that was initialised since gives PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before v2), an expired one INVALID_PRODUCER_ID_MAPPING.
_COMMITTING: Final[Mapping[int, tuple[int, Outcome]]] = {
    ErrorCode.NONE: (0, Outcome.COMMITTED),
    # With version 1 a coordinator says it also of a transaction that was committed, if that was done with another EndTxn version.
    ErrorCode.INVALID_TXN_STATE: (2, Outcome.ABORTED),
}
_ABORTING: Final[Mapping[int, tuple[int, Outcome]]] = {ErrorCode.NONE: (0, Outcome.ABORTED)}


def outcome_of_end(handle: TransactionHandle, code: int, *, committed: bool) -> Outcome:
    """Returns what the error code of an EndTxn response proves. committed: whether the request was to commit, not to abort."""
    since, outcome = (_COMMITTING if committed else _ABORTING).get(code, (0, Outcome.UNKNOWN))
    return outcome if handle.transaction_version >= since else Outcome.UNKNOWN


# DescribeTransactions


class Proof(StrEnum):
    """The proof that a description gives. UNKNOWN: it describes, or may describe, another transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


P = Proof

# By state: the proof at the transaction's own epoch, and at the next one.
_VERSION_1: Final[Mapping[str, tuple[Proof, Proof]]] = {
    "Ongoing": (P.OPEN, P.UNKNOWN),
    "PrepareCommit": (P.COMMITTED, P.UNKNOWN),
    "CompleteCommit": (P.COMMITTED, P.UNKNOWN),
    "PrepareAbort": (P.ABORTED, P.ABORTED),
    "CompleteAbort": (P.ABORTED, P.ABORTED),
    "PrepareEpochFence": (P.UNKNOWN, P.ABORTED),
}
_VERSION_2: Final[Mapping[str, tuple[Proof, Proof]]] = {
    "Ongoing": (P.OPEN, P.UNKNOWN),
    "PrepareCommit": (P.UNKNOWN, P.COMMITTED),
    "CompleteCommit": (P.UNKNOWN, P.COMMITTED),
    "PrepareAbort": (P.UNKNOWN, P.ABORTED),
    "CompleteAbort": (P.UNKNOWN, P.ABORTED),
    "PrepareEpochFence": (P.UNKNOWN, P.ABORTED),
}
_NOTHING: Final = (P.UNKNOWN, P.UNKNOWN)


def proof_of(handle: TransactionHandle, description: TransactionDescription | None) -> Proof:
    """Returns the outcome of the transaction according to its coordinator. description: None if the id is unknown there.

    With version 1 an abort one epoch later proves a timeout only if the id was not initialised again: a transaction that began
    after a committed one and was aborted looks the same. The caller must rule that out (the commit log still says `prepared`, and
    ids are reused only after `complete`). With version 2 every epoch has exactly one end, which is its own proof.
    """
    if description is None or description.producer_id != handle.producer_id:
        return Proof.UNKNOWN
    table = _VERSION_2 if handle.transaction_version >= 2 else _VERSION_1
    later = description.epoch - handle.epoch
    return table.get(description.state, _NOTHING)[later] if later in (0, 1) else Proof.UNKNOWN


# Markers in topics


def proof_of_marker(handle: TransactionHandle, producer_id: int, epoch: int, *, committed: bool) -> Proof:
    """Returns what a marker proves. Its epoch is that of the coordinator when it had decided."""
    state = "CompleteCommit" if committed else "CompleteAbort"
    return proof_of(handle, TransactionDescription(state, producer_id, epoch, 0, -1))


def outcome_of_markers(proofs: Collection[Proof]) -> Outcome:
    """Returns the outcome of a transaction from what the markers in each of its partitions prove.

    An abort has to be proved in all of them, because `kafka-transactions abort` writes a marker to one partition alone.
    """
    found = set(proofs)
    if found == {Proof.ABORTED}:
        return Outcome.ABORTED
    return Outcome.COMMITTED if found in ({Proof.COMMITTED}, {Proof.COMMITTED, Proof.UNKNOWN}) else Outcome.UNKNOWN
