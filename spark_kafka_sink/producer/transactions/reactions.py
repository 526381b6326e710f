"""The reaction to each error code of the APIs of transactions: one table for each API.

Java has it in the handleResponse of each handler in TransactionManager. Codes that a table does not name are retried where Java's
class for them is a RetriableException, and otherwise fatal, but for AddPartitionsToTxn: those are about the partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts


class Reaction(IntEnum):
    """The fate of the request; of several in one answer the gravest counts, which is the largest."""

    DONE = 0
    RETRY = 1  # after retry.backoff.ms
    RETRY_SOON = 2  # what is in the way takes some ms
    FIND_COORDINATOR = 3  # ask who the coordinator is, then again
    ABORTABLE = 4  # the transaction can only be aborted
    NOT_ALLOWED = 5  # nothing has begun; the call can be repeated once it is granted
    ABORTABLE_WITHOUT_END = 6  # the same, and EndTxn would not be understood: another epoch at once
    FATAL = 7
    FENCED = 8


E, R = ErrorCode, Reaction

# Of all of them. An old coordinator says INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
_ALL: Final[dict[int, Reaction]] = {
    E.NONE: R.DONE,
    E.CONCURRENT_TRANSACTIONS: R.RETRY_SOON,
    E.NOT_COORDINATOR: R.FIND_COORDINATOR,
    E.COORDINATOR_NOT_AVAILABLE: R.FIND_COORDINATOR,
    E.INVALID_PRODUCER_EPOCH: R.FENCED,
    E.PRODUCER_FENCED: R.FENCED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: R.FATAL,
    E.TRANSACTION_ABORTABLE: R.ABORTABLE,
}

_UNKNOWN_PRODUCER: Final[dict[int, Reaction]] = {
    E.UNKNOWN_PRODUCER_ID: R.ABORTABLE_WITHOUT_END,
    E.INVALID_PRODUCER_ID_MAPPING: R.ABORTABLE_WITHOUT_END,
}

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
        E.TOPIC_AUTHORIZATION_FAILED: R.ABORTABLE,  # fatal in Java, as is the next: both are about these offsets only
        E.OFFSET_METADATA_TOO_LARGE: R.ABORTABLE,
        E.FENCED_INSTANCE_ID: R.ABORTABLE,
        E.UNKNOWN_MEMBER_ID: R.ABORTABLE,
        E.ILLEGAL_GENERATION: R.ABORTABLE,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT: R.FATAL,
    },
    ApiKey.END_TXN: _ALL | _UNKNOWN_PRODUCER | {E.INVALID_TXN_STATE: R.FATAL},
}

# What was not tried because of another partition's error in the same answer: that one decides, also where it passes.
_NO_CAUSE: Final = frozenset({E.OPERATION_NOT_ATTEMPTED})

ADVICE: Final[Mapping[int, str]] = {
    E.INVALID_TRANSACTION_TIMEOUT: "transaction.timeout.ms is over the brokers' transaction.max.timeout.ms, which is 15 minutes"
    " (900000) unless they set it: set it to that at most",
    E.PRODUCER_FENCED: "another producer has this transactional id now, or the transaction was open for longer than"
    " transaction.timeout.ms",
    E.INVALID_PRODUCER_EPOCH: "another producer has this transactional id now, or the transaction was open for longer than"
    " transaction.timeout.ms",
    E.INVALID_TXN_STATE: "the coordinator has no such open transaction: it was open for longer than transaction.timeout.ms, or"
    " somebody else has ended it",
    E.UNKNOWN_MEMBER_ID: "the consumer that read these offsets has left its group, or was put out of it",
    E.ILLEGAL_GENERATION: "the consumer's group has been balanced again since",
    E.FENCED_INSTANCE_ID: "another consumer has this group.instance.id now",
}
"""Advice to a user, where the name does not say it; for missing rights see security/acls.py."""


def reaction(api: ApiKey, code: int) -> Reaction:
    """The table."""
    found = TABLES[api].get(code)
    if found is not None:
        return found
    if error_facts(code).retriable:
        return Reaction.RETRY
    return Reaction.ABORTABLE if api is ApiKey.ADD_PARTITIONS_TO_TXN else Reaction.FATAL


def gravest(api: ApiKey, codes: Mapping[str, int]) -> tuple[str, int]:
    """Returns which of the things an answer is about (topics, groups), by their names, decides, and its code."""
    causes = {what: code for what, code in codes.items() if code not in _NO_CAUSE}
    deciding = causes if any(causes.values()) else codes
    return max(deciding.items(), key=lambda of: reaction(api, of[1]), default=("", int(E.NONE)))
