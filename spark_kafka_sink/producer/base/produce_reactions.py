"""The action for each error code in a Produce response, in one table.

Java spreads this over Sender.completeBatch, Sender.canRetry, TransactionManager.canRetry and handleFailedBatch. The codes
themselves (name, whether they concern metadata) are in protocol/error_codes.py.
"""

from __future__ import annotations

from enum import Enum, auto

from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts

# After CONCURRENT_TRANSACTIONS: the markers of the previous transaction are written within 6 to 18 ms (Java's
# ADD_PARTITIONS_RETRY_BACKOFF_MS).
SOON_MS = 20


class Action(Enum):
    """The treatment of the batch."""

    DELIVERED = auto()
    RETRY = auto()  # the same bytes with the same numbers, for it may have been stored
    LATER = auto()  # not stored: the same, too
    TOPIC_UNKNOWN = auto()  # the same, but the topic may be recreated before the retry
    OUT_OF_ORDER = auto()  # not stored: retry in order; renumber if the broker lost count
    PRODUCER_LOST = auto()  # not stored, the broker forgot this producer: renumber
    SPLIT = auto()  # not stored: split without using up a retry; a single record is rejected
    HALVE = auto()  # not stored because of records that the broker does not name: split to find them
    REJECTED = auto()  # not stored because of the named records: those fail, the others continue; if none is named, all fail
    FAIL = auto()  # this batch fails, others continue in a new epoch; a transaction can only be aborted
    FATAL = auto()  # the producer cannot continue


_ACTIONS: dict[Action, tuple[ErrorCode, ...]] = {
    Action.DELIVERED: (
        ErrorCode.NONE,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,  # stored before; the broker no longer knows the offset
    ),
    Action.RETRY: (
        # Leadership and metadata, which is refreshed (ErrorFacts.refreshes_metadata)
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,  # also used for a lost connection: the batch may have been stored
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        # Transient broker errors
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,  # the batch may have been stored
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,  # the batch was stored
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ),
    Action.LATER: (
        ErrorCode.NOT_ENOUGH_REPLICAS,  # Partition.appendRecordsToLeader checks before it appends
        # The leader asks the coordinator before it appends (AddPartitionsToTxnManager).
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ),
    Action.TOPIC_UNKNOWN: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID),
    Action.OUT_OF_ORDER: (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,),
    Action.PRODUCER_LOST: (ErrorCode.UNKNOWN_PRODUCER_ID,),
    Action.SPLIT: (ErrorCode.MESSAGE_TOO_LARGE,),
    Action.REJECTED: (
        # Result of LogValidator.processRecordErrors, which checks every record. Java fails the whole batch, including records
        # without an error (Sender.failBatch).
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    ),
    Action.FAIL: (
        # Errors of these records or this topic
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        # Errors of the request or the broker
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_REQUEST,
        # Errors of the producer in this partition
        ErrorCode.INVALID_PRODUCER_EPOCH,  # in a Produce response; a coordinator that returns it has fenced the producer
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ),
    Action.FATAL: (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
}

_ACTION_OF: dict[int, Action] = {code: action for action, codes in _ACTIONS.items() for code in codes}


def action_for(code: int, *, idempotent: bool) -> Action:
    """Returns the action for an error code. Outside the table only what is retriable in Java is retried, and no unknown code."""
    action = _ACTION_OF.get(code) or (Action.RETRY if error_facts(code).retriable else Action.FAIL)
    if not idempotent and action in (Action.OUT_OF_ORDER, Action.PRODUCER_LOST):
        return Action.FAIL
    return action


WITHOUT_IDEMPOTENCE = (
    "to do without idempotence, set enable.idempotence=false (in Spark: kafka.enable.idempotence=false); retries may then"
    " store records twice"
)

FORGOTTEN = (
    "the coordinator has forgotten this transactional id, which was unused for the brokers' transactional.id.expiration.ms (by"
    " default 7 days), or another producer uses it now: close this producer, create a new one, and start from the committed"
    " offsets"
)

# Advice about an error that fails a batch, where its name is not enough. security/acls.py covers missing permissions.
ADVICE: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "a single record exceeds the topic's max.message.bytes: raise it, or send less data per record",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic name is not valid",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: FORGOTTEN,
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch exceeds the broker's segment size: set batch.size below it",
    ErrorCode.INVALID_REQUIRED_ACKS: "the broker does not support this acks setting",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message.format.version is older than 0.11, so its records have no"
    " producer ids and no headers: remove that config from the topic",
    ErrorCode.INVALID_TIMESTAMP: "timestamps, in ms since 1970, are outside the topic's message.timestamp.before.max.ms and"
    " message.timestamp.after.max.ms",
    ErrorCode.INVALID_RECORD: "the topic rejects these records: a compacted topic requires a key in each record",
}
