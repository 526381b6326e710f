"""The input and output values of a log."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from spark_kafka_sink.records.compression import Buffer

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class PartitionName(NamedTuple):
    topic: str
    partition: int
    topic_id: uuid.UUID


class LogHooks(NamedTuple):
    """The callbacks of a log.

    on_advance: called without the log's lock after each append. check_disk: called with the size of each append; it may raise
    OSError, which fails the append like a full disk.
    """

    wall_ms: Callable[[], int]
    on_advance: Callable[[], None] = lambda: None
    check_disk: Callable[[int], None] = lambda size: None


class AppendOrigin(Enum):
    """The writer of a batch, which decides the checks.

    Coordinators' records have no sequence numbers. Records of a log that is read again (REPLICATION) were checked when they were
    written.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class IsolationLevel(IntEnum):
    """The isolation level of a request, which decides how far a consumer may read."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The result of an append. `log_append_time_ms` is -1 if records keep their producer's timestamps.

    `duplicate`: the records were already in the log, at these offsets.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_count: int
    size: int
    duplicate: bool = False


class AbortedTransaction(NamedTuple):
    """An aborted transaction as Fetch returns it."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchDataInfo:
    """The result of a read.

    records: batches end to end, the last possibly cut off; later changes of the log do not affect them. aborted_transactions:
    None unless READ_COMMITTED was requested. is_behind: a later segment has more to read than this read returns.
    """

    records: list[Buffer]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTransaction] | None = None
    is_behind: bool = False

    @property
    def size(self) -> int:
        """The number of bytes in `records`."""
        return sum(map(len, self.records))


class TimestampAndOffset(NamedTuple):
    """A result of ListOffsets. The timestamp is -1 for the ends of a log; the leader epoch is -1 if it is unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """A result of DescribeProducers. A value is -1 if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
