"""The states of a transactional producer, the transitions between them, and the calls that each allows (Java's State)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from spark_kafka_sink.errors import UsageError


class State(Enum):
    """Java's TransactionManager.State."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()  # InitProducerId is pending: for the first or for another epoch
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED_TRANSACTION = auto()  # another process ends it; this is a final state
    COMMITTING_TRANSACTION = auto()
    ABORTING_TRANSACTION = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


S = State

NEXT: Final[Mapping[State, frozenset[State]]] = {
    S.UNINITIALIZED: frozenset({S.INITIALIZING, S.FATAL_ERROR}),
    # Returns here if the id may not be used: permission may be granted later (KIP-1050's application-recoverable errors).
    S.INITIALIZING: frozenset({S.READY, S.UNINITIALIZED, S.FATAL_ERROR}),
    S.READY: frozenset({S.IN_TRANSACTION, S.FATAL_ERROR}),
    S.IN_TRANSACTION: frozenset(
        {S.PREPARED_TRANSACTION, S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION, S.ABORTABLE_ERROR, S.FATAL_ERROR}
    ),
    S.PREPARED_TRANSACTION: frozenset(),
    # ABORTABLE_ERROR for a missed record until EndTxn is sent (TransactionManager.missed), afterwards for its response only.
    S.COMMITTING_TRANSACTION: frozenset({S.READY, S.INITIALIZING, S.ABORTABLE_ERROR, S.FATAL_ERROR}),
    S.ABORTING_TRANSACTION: frozenset({S.READY, S.INITIALIZING, S.FATAL_ERROR}),
    S.ABORTABLE_ERROR: frozenset({S.ABORTING_TRANSACTION, S.FATAL_ERROR}),
    S.FATAL_ERROR: frozenset(),
}
"""The allowed transitions. An error while aborting is ignored; the first error of a transaction counts."""


class Call(Enum):
    """Calls of a program, by the name of the producer's method."""

    INIT = "init_transactions"
    BEGIN = "begin"
    SEND = "send"
    SEND_OFFSETS = "send_offsets"
    COMMIT = "commit"
    ABORT = "abort"
    PREPARE = "prepare"


ALLOWED_IN: Final[Mapping[Call, frozenset[State]]] = {
    Call.INIT: frozenset({S.UNINITIALIZED}),
    Call.BEGIN: frozenset({S.READY}),
    Call.SEND: frozenset({S.IN_TRANSACTION}),
    Call.SEND_OFFSETS: frozenset({S.IN_TRANSACTION}),
    Call.COMMIT: frozenset({S.IN_TRANSACTION}),
    Call.ABORT: frozenset({S.IN_TRANSACTION, S.ABORTABLE_ERROR}),
    Call.PREPARE: frozenset({S.IN_TRANSACTION}),
}

UNDER_WAY: Final[Mapping[Call, frozenset[State]]] = {
    Call.INIT: frozenset({S.INITIALIZING}),
    Call.COMMIT: frozenset({S.COMMITTING_TRANSACTION, S.INITIALIZING}),
    Call.ABORT: frozenset({S.ABORTING_TRANSACTION, S.INITIALIZING}),
}
"""The states in which a call is in progress."""

INSTEAD: Final[Mapping[State, str]] = {
    S.UNINITIALIZED: "call init_transactions() first",
    S.INITIALIZING: "repeat the call that has not finished yet (init_transactions(), commit() or abort())",
    S.READY: "call begin() to open a transaction",
    S.IN_TRANSACTION: "end the open transaction first with commit() or abort()",
    S.PREPARED_TRANSACTION: "the transaction no longer belongs to this producer",
    S.COMMITTING_TRANSACTION: "call commit() again to wait for its end",
    S.ABORTING_TRANSACTION: "call abort() again to wait for its end",
    S.ABORTABLE_ERROR: "call abort()",
    S.FATAL_ERROR: "close the producer",
}
"""What to do instead of a call that is not allowed."""


def check_move(state: State, following: State) -> None:
    """Raises UsageError for a transition that is not in the table."""
    if following not in NEXT[state]:
        raise UsageError(f"a transaction that is {state.name} cannot become {following.name}")


def check_call(call: Call, state: State, transactional_id: str) -> None:
    """Raises UsageError for a call that the state does not allow. The message says what to call instead."""
    if state not in ALLOWED_IN[call]:
        raise UsageError(
            f"transactional id {transactional_id}: {call.value}() is not allowed in state {state.name}: {INSTEAD[state]}",
            transactional_id=transactional_id,
            state=state.name,
        )
