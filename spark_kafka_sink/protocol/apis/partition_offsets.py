"""ListOffsets and OffsetForLeaderEpoch: offsets by timestamp, and the end of a leader epoch."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import INT8, INT16, INT32, INT64, STRING, ArrayOf, Message, message, wire

# ListOffsets (2): the first offset at or after a timestamp, or an end of a partition.


class ListOffsetsTimestamp(IntEnum):
    """Special timestamps: an end of a partition, the record with the largest timestamp, the bounds of tiered storage."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


@message
class ListOffsetsPartition(Message):
    """A partition to look up. `timestamp`: milliseconds, or one of the special values above."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = wire(INT64, default=0)


@message
class ListOffsetsTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[ListOffsetsPartition] = wire(ArrayOf(ListOffsetsPartition), default=())


@message
class ListOffsetsRequest(Message):
    """A request for offsets. `replica_id`: -1 for clients. `isolation_level`: as in Fetch. `timeout_ms`: for tiered storage."""

    replica_id: int = wire(INT32)
    isolation_level: int = wire(INT8, since=2, default=0)
    topics: Sequence[ListOffsetsTopic] = wire(ArrayOf(ListOffsetsTopic), default=())
    timeout_ms: int = wire(INT32, since=10, default=0, ignorable=True)


@message
class ListOffsetsPartitionResponse(Message):
    """The offset and timestamp of the first record at or after the timestamp; -1 if there is none."""

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


# OffsetForLeaderEpoch (23): the end of a leader epoch, with which consumers and followers detect truncation (KIP-320).


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
    """A request for ends of epochs. `replica_id`: -1 a consumer, -2 one that reads past the high watermark (Kafka's debugging
    consumer).
    """

    replica_id: int = wire(INT32, since=3, default=-2, ignorable=True)
    topics: Sequence[OffsetForLeaderTopic] = wire(ArrayOf(OffsetForLeaderTopic), default=())


@message
class EpochEndOffset(Message):
    """The largest epoch up to the requested one, and the offset after its last record; -1 if unknown."""

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
