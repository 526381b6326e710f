"""The states of a transactional producer, the calls that each allows (Java's State), and the reaction to each error code."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Final

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.base.produce_reactions import FORGOTTEN
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts


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
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
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
    S.INITIALIZING: "repeat init_transactions(), commit_transaction() or abort_transaction(), whichever has not finished",
    S.READY: "call begin_transaction() to open a transaction",
    S.IN_TRANSACTION: "end the open transaction first with commit_transaction() or abort_transaction()",
    S.PREPARED_TRANSACTION: "the transaction no longer belongs to this producer",
    S.COMMITTING_TRANSACTION: "call commit_transaction() again to wait for its end",
    S.ABORTING_TRANSACTION: "call abort_transaction() again to wait for its end",
    S.ABORTABLE_ERROR: "call abort_transaction()",
    S.FATAL_ERROR: "close the producer",
}
"""Advice for each call that is not allowed."""


def check_call(call: Call, state: State, transactional_id: str) -> None:
    """Raises UsageError for a call that the state does not allow. The message says what to call instead."""
    if state not in ALLOWED_IN[call]:
        raise UsageError(
            f"transactional id {transactional_id}: {call.value}() is not allowed in state {state.name}: {INSTEAD[state]}",
            transactional_id=transactional_id,
            state=state.name,
        )


# Reactions to error codes. Java has them in the handleResponse of each handler in TransactionManager. Codes outside a table are
# retried if Java's exception is a RetriableException and otherwise fatal, except for AddPartitionsToTxn, whose codes concern
# partitions.


class Reaction(IntEnum):
    """The treatment of a request. Of several in one response, the largest (most severe) counts."""

    DONE = 0
    RETRY = 1  # after retry.backoff.ms
    RETRY_SOON = 2  # the obstacle lasts a few ms
    FIND_COORDINATOR = 3  # look the coordinator up, then retry
    ABORTABLE = 4  # the transaction can only be aborted
    NOT_ALLOWED = 5  # nothing has begun; repeat the call once permission is granted
    ABORTABLE_WITHOUT_END = 6  # like ABORTABLE, but EndTxn would not be understood: get another epoch at once
    FATAL = 7
    FENCED = 8


E, R = ErrorCode, Reaction

# Codes of all APIs. An old coordinator returns INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
_ALL: Final[dict[int, Reaction]] = {
    E.NONE: R.DONE,
    E.CONCURRENT_TRANSACTIONS: R.RETRY_SOON,
    E.NOT_COORDINATOR: R.FIND_COORDINATOR,
    E.COORDINATOR_NOT_AVAILABLE: R.FIND_COORDINATOR,
    E.INVALID_PRODUCER_EPOCH: R.FENCED,
    E.PRODUCER_FENCED: R.FENCED,
    # Not abortable: a producer that was fenced gets this code too, once the coordinator has forgotten the id (KAFKA-18019).
    E.INVALID_PRODUCER_ID_MAPPING: R.FATAL,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: R.FATAL,
    E.TRANSACTION_ABORTABLE: R.ABORTABLE,
}

_UNKNOWN_PRODUCER: Final[dict[int, Reaction]] = {E.UNKNOWN_PRODUCER_ID: R.ABORTABLE_WITHOUT_END}

TABLES: Final[Mapping[ApiKey, Mapping[int, Reaction]]] = {
    ApiKey.FIND_COORDINATOR: _ALL
    | {
        E.COORDINATOR_NOT_AVAILABLE: R.RETRY,
        E.NOT_COORDINATOR: R.RETRY,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: R.NOT_ALLOWED,
        E.GROUP_AUTHORIZATION_FAILED: R.ABORTABLE,
    },
    ApiKey.INIT_PRODUCER_ID: _ALL
    | {
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: R.NOT_ALLOWED,
        E.CLUSTER_AUTHORIZATION_FAILED: R.NOT_ALLOWED,
        E.TRANSACTION_ABORTABLE: R.NOT_ALLOWED,
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: _ALL | _UNKNOWN_PRODUCER | {E.INVALID_TXN_STATE: R.FATAL},
    ApiKey.ADD_OFFSETS_TO_TXN: _ALL
    | _UNKNOWN_PRODUCER
    | {E.INVALID_TXN_STATE: R.FATAL, E.GROUP_AUTHORIZATION_FAILED: R.ABORTABLE},
    ApiKey.TXN_OFFSET_COMMIT: _ALL
    | {
        E.REQUEST_TIMED_OUT: R.FIND_COORDINATOR,
        E.GROUP_AUTHORIZATION_FAILED: R.ABORTABLE,
        E.TOPIC_AUTHORIZATION_FAILED: R.ABORTABLE,  # fatal in Java, like the next: both concern these offsets only
        E.OFFSET_METADATA_TOO_LARGE: R.ABORTABLE,
        E.FENCED_INSTANCE_ID: R.ABORTABLE,
        E.UNKNOWN_MEMBER_ID: R.ABORTABLE,
        E.ILLEGAL_GENERATION: R.ABORTABLE,
        E.STALE_MEMBER_EPOCH: R.ABORTABLE,
        E.GROUP_ID_NOT_FOUND: R.ABORTABLE,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT: R.FATAL,
    },
    ApiKey.END_TXN: _ALL | _UNKNOWN_PRODUCER | {E.INVALID_TXN_STATE: R.FATAL},
    ApiKey.METADATA: _ALL,
}

# Not attempted because of another partition's error in the same response: that error decides, even if it is transient.
_NO_CAUSE: Final = frozenset({E.OPERATION_NOT_ATTEMPTED})

_LONGER: Final = "longer than transaction.timeout.ms (in Spark: kafka.transaction.timeout.ms)"
_FENCED: Final = f"another producer uses this transactional id now, or the transaction was open for {_LONGER}"

ADVICE: Final[Mapping[int, str]] = {
    E.INVALID_TRANSACTION_TIMEOUT: "transaction.timeout.ms exceeds the brokers' transaction.max.timeout.ms, which defaults to"
    " 15 minutes (900000): lower"
    " it to at most that",
    E.PRODUCER_FENCED: _FENCED,
    E.INVALID_PRODUCER_EPOCH: _FENCED,
    E.INVALID_PRODUCER_ID_MAPPING: FORGOTTEN,
    E.INVALID_TXN_STATE: f"the coordinator has no such open transaction: it was open for {_LONGER}, or another process has ended"
    " it",
    E.UNSUPPORTED_VERSION: "this cluster does not serve transactions to this client; in Spark, set"
    " delivery.guarantee=at-least-once",
    E.UNKNOWN_MEMBER_ID: "the consumer that read these offsets has left its group, or was removed from it",
    E.ILLEGAL_GENERATION: "the consumer group has rebalanced since",
    E.STALE_MEMBER_EPOCH: "the consumer group has rebalanced since",
    E.GROUP_ID_NOT_FOUND: "the consumer group does not exist any more",
    E.FENCED_INSTANCE_ID: "another consumer uses this group.instance.id now",
}
"""Advice to the user if the error's name is not enough. security/acls.py covers missing permissions."""


def reaction(api: ApiKey, code: int) -> Reaction:
    found = TABLES[api].get(code)
    if found is not None:
        return found
    if error_facts(code).retriable:
        return Reaction.RETRY
    return Reaction.ABORTABLE if api is ApiKey.ADD_PARTITIONS_TO_TXN else Reaction.FATAL


def gravest(api: ApiKey, codes: Mapping[str, int]) -> tuple[str, int]:
    """Returns the topic or group, by name, whose error in a response is the most severe, and that code."""
    causes = {what: code for what, code in codes.items() if code not in _NO_CAUSE}
    deciding = causes if any(causes.values()) else codes
    return max(deciding.items(), key=lambda of: reaction(api, of[1]), default=("", int(E.NONE)))
