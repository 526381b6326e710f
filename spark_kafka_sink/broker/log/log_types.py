"""The input and output of a log, as values."""

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
    """The questions of a log to others, and what it tells them.

    on_advance: called without the log's lock after each append. check_disk: called with the bytes of each append; an OSError
    from it is that append's, as a full disk's would be.
    """

    wall_ms: Callable[[], int]
    on_advance: Callable[[], None] = lambda: None
    check_disk: Callable[[int], None] = lambda size: None


class AppendOrigin(Enum):
    """Who writes, and so what is checked: a coordinator's records have no sequence numbers, those of a log that is read again
    (REPLICATION) were checked when they were written."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class IsolationLevel(IntEnum):
    """As in requests: up to where a consumer may read."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The place where records came to lie. `log_append_time_ms` is -1 where records keep their producer's time. `duplicate`: they
    were in the log already, at these offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_count: int
    size: int
    duplicate: bool = False


class AbortedTransaction(NamedTuple):
    """As a Fetch answers it."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchDataInfo:
    """records: batches end to end, the last possibly cut off; they stay as they are whatever becomes of the log.
    aborted_transactions: None unless READ_COMMITTED was asked for. is_behind: what may be read goes on in a later segment, which
    this read does not reach."""

    records: list[Buffer]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTransaction] | None = None
    is_behind: bool = False

    @property
    def size(self) -> int:
        """Bytes of `records`."""
        return sum(map(len, self.records))


class TimestampAndOffset(NamedTuple):
    """The answer of ListOffsets: timestamp -1 for the ends of a log; leader epoch -1 where none is known."""

    timestamp: int
    offset: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """The answer of DescribeProducers; -1 where there is nothing to say."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
