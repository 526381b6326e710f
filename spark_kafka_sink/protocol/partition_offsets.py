"""Offsets in a partition's log: by timestamp, and the end of a leader epoch."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT8, INT16, INT32, INT64, STRING, ArrayOf

# ListOffsets (2): the offset that a timestamp stands for, or an end of a partition.


LATEST_TIMESTAMP = -1
"""The offset behind the last record that the isolation level lets be seen."""
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
"""The record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""The first offset that is not in tiered storage alone (KIP-405)."""
LATEST_TIERED_TIMESTAMP = -5
"""The last offset in tiered storage (KIP-1005)."""


@message
class ListOffsetsPartition(Message):
    """`timestamp`: milliseconds, or one of the special ones above."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = wire(INT64, default=0)


@message
class ListOffsetsTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[ListOffsetsPartition] = wire(ArrayOf(ListOffsetsPartition), default=())


@message
class ListOffsetsRequest(Message):
    """`replica_id` is -1 for a client; `isolation_level` as in Fetch. `timeout_ms` is for what tiered storage must look up."""

    replica_id: int = wire(INT32)
    isolation_level: int = wire(INT8, since=2, default=0)
    topics: Sequence[ListOffsetsTopic] = wire(ArrayOf(ListOffsetsTopic), default=())
    timeout_ms: int = wire(INT32, since=10, default=0, ignorable=True)


@message
class ListOffsetsPartitionResponse(Message):
    """Offset and timestamp of the first record not older than asked; -1 where there is none."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, default=-1)
    offset: int = wire(INT64, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)


@message
class ListOffsetsTopicResponse(Message):
    name: str = wire(STRING)
    partitions: Sequence[ListOffsetsPartitionResponse] = wire(ArrayOf(ListOffsetsPartitionResponse), default=())


@message
class ListOffsetsResponse(Message):
    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    topics: Sequence[ListOffsetsTopicResponse] = wire(ArrayOf(ListOffsetsTopicResponse), default=())


LIST_OFFSETS = Api(ApiKey.LIST_OFFSETS, 1, 10, 6, ListOffsetsRequest, ListOffsetsResponse)


# OffsetForLeaderEpoch (23): where a leader epoch ended, by which consumers and followers find truncation (KIP-320).


@message
class OffsetForLeaderPartition(Message):
    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=0)


@message
class OffsetForLeaderTopic(Message):
    topic: str = wire(STRING)
    partitions: Sequence[OffsetForLeaderPartition] = wire(ArrayOf(OffsetForLeaderPartition), default=())


@message
class OffsetForLeaderEpochRequest(Message):
    """`replica_id`: -1 a consumer, -2 one that sees beyond the high watermark (Kafka's debugging consumer)."""

    replica_id: int = wire(INT32, since=3, default=-2, ignorable=True)
    topics: Sequence[OffsetForLeaderTopic] = wire(ArrayOf(OffsetForLeaderTopic), default=())


@message
class EpochEndOffset(Message):
    """The largest epoch not over the one asked, and the offset behind its last record; -1 where unknown."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@message
class OffsetForLeaderTopicResult(Message):
    topic: str = wire(STRING)
    partitions: Sequence[EpochEndOffset] = wire(ArrayOf(EpochEndOffset), default=())


@message
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[OffsetForLeaderTopicResult] = wire(ArrayOf(OffsetForLeaderTopicResult), default=())


OFFSET_FOR_LEADER_EPOCH = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
