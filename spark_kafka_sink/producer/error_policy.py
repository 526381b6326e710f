"""The action for each error code in a Produce answer: one table.

Java spreads this over Sender.completeBatch, Sender.canRetry, TransactionManager.canRetry and handleFailedBatch. What a code is
(its name, whether it is about metadata) stands in protocol/error_codes.py; here stands what the producer does about it.
"""

from __future__ import annotations

from enum import Enum, auto

from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts

# After CONCURRENT_TRANSACTIONS: the markers of the transaction before are written within 6 to 18 ms (Java's
# ADD_PARTITIONS_RETRY_BACKOFF_MS).
SOON_MS = 20


class Action(Enum):
    """The fate of the batch."""

    DELIVERED = auto()
    RETRY = auto()  # the same bytes with the same numbers
    TOPIC_UNKNOWN = auto()  # the same, but the topic may be created again before that
    OUT_OF_ORDER = auto()  # not stored: retry in order, renumber when the broker lost count
    PRODUCER_LOST = auto()  # not stored, the broker forgot this producer: renumber
    SPLIT = auto()  # not stored: in smaller batches, without a retry used; one record alone fails
    REJECTED = auto()  # not stored because of records that are named: those fail, the others go on; all of it if none is
    FAIL = auto()  # this batch fails, others go on in a new epoch; a transaction could only be aborted
    FATAL = auto()  # the producer cannot go on


_ACTIONS: dict[Action, tuple[ErrorCode, ...]] = {
    Action.DELIVERED: (
        ErrorCode.NONE,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,  # stored before; the broker no longer knows where
    ),
    Action.RETRY: (
        # About leadership and metadata, which is asked for again (ErrorFacts.refreshes_metadata)
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,  # also what a lost connection counts as: it may have been stored
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        # Passing trouble at the broker
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,  # it may have been stored
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,  # it was stored
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ),
    Action.TOPIC_UNKNOWN: (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ),
    Action.OUT_OF_ORDER: (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,),
    Action.PRODUCER_LOST: (ErrorCode.UNKNOWN_PRODUCER_ID,),
    Action.SPLIT: (ErrorCode.MESSAGE_TOO_LARGE,),
    Action.REJECTED: (
        # What LogValidator.processRecordErrors answers, after it has looked at every record. Java fails the whole batch, and so
        # does with it records that nobody has anything against (Sender.failBatch).
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    ),
    Action.FAIL: (
        # About these records, or this topic
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        # About the request, or the broker
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_REQUEST,
        # About the producer in this partition
        ErrorCode.INVALID_PRODUCER_EPOCH,  # to Produce; a coordinator that says so has fenced the producer
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    ),
    Action.FATAL: (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
    ),
}

_ACTION_OF: dict[int, Action] = {code: action for action, codes in _ACTIONS.items() for code in codes}


def action_for(code: int, *, idempotent: bool) -> Action:
    """The table. What it does not name is retried if Java's class for it is retriable; an unknown code is not."""
    action = _ACTION_OF.get(code) or (Action.RETRY if error_facts(code).retriable else Action.FAIL)
    if not idempotent and action in (Action.OUT_OF_ORDER, Action.PRODUCER_LOST):
        return Action.FAIL
    return action


WITHOUT_IDEMPOTENCE = (
    "set enable.idempotence=false (in Spark: kafka.enable.idempotence=false) to do without, and a retry may store records twice"
)

# What a user can do about an error that fails a batch, where the name does not say it; for missing rights see security/acls.py.
ADVICE: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "one record alone is over the topic's max.message.bytes: raise that, or send less in a record",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is not a legal one",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is over the broker's segment size: set batch.size below it",
    ErrorCode.INVALID_REQUIRED_ACKS: "the broker does not take this acks setting",
    ErrorCode.INVALID_TIMESTAMP: "these timestamps are outside the topic's message.timestamp.before.max.ms and after.max.ms",
    ErrorCode.INVALID_RECORD: "the topic refuses these records: a compacted topic needs a key in each",
}
