"""OffsetForLeaderEpoch (23): where a leader epoch ended, by which consumers and followers find truncation (KIP-320)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING, ArrayOf


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
