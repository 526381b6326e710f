"""What `__transaction_state` holds (Kafka's module transaction-coordinator), and the markers that end transactions in a log."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from spark_kafka_sink.protocol.api import NEVER_FLEXIBLE
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.versioned import VersionedRecord
from spark_kafka_sink.protocol.wire_types import INT8, INT16, INT32, INT64, STRING, ArrayOf


@message
class TransactionLogKey(Message):
    transactional_id: str = wire(STRING)


@message
class PartitionsSchema(Message):
    topic: str = wire(STRING)
    partition_ids: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class TransactionLogValue(Message):
    """v0 with transaction version 0, else v1. `transaction_partitions` is None in state Empty.

    `transaction_status`: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead,
    7 PrepareEpochFence.
    """

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_timeout_ms: int = wire(INT32)
    transaction_status: int = wire(INT8)
    transaction_partitions: Sequence[PartitionsSchema] | None = wire(ArrayOf(PartitionsSchema), nullable_since=0)
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)
    previous_producer_id: int = wire(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = wire(INT64, since=1, tag=1, default=-1)
    client_transaction_version: int = wire(INT16, since=1, tag=2, default=0)
    next_producer_epoch: int = wire(INT16, since=1, tag=3, default=-1)


class ControlRecordType(IntEnum):
    """Of the control records, those that end a transaction."""

    ABORT = 0
    COMMIT = 1


@message
class ControlRecordKey(Message):
    """`type` is a plain int, because KRaft's own log has control records of other types."""

    type: int = wire(INT16)


@message
class EndTxnMarker(Message):
    coordinator_epoch: int = wire(INT32)


TRANSACTION_LOG_KEY: Final = VersionedRecord(TransactionLogKey, 0, NEVER_FLEXIBLE, key_type=0)
TRANSACTION_LOG_VALUE: Final = VersionedRecord(TransactionLogValue, 1, 1, written_version=1)
CONTROL_RECORD_KEY: Final = VersionedRecord(ControlRecordKey, 0, NEVER_FLEXIBLE)
END_TXN_MARKER: Final = VersionedRecord(EndTxnMarker, 0, NEVER_FLEXIBLE)
