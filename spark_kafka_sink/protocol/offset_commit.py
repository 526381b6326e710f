"""OffsetCommit (8): keeps how far a consumer group has read."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING, ArrayOf


@message
class OffsetCommitRequestPartition(Message):
    """The offset to read next; `committed_leader_epoch` is that of the record before, -1 where unknown."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable_since=0, default="")


@message
class OffsetCommitRequestTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetCommitRequestPartition] = wire(ArrayOf(OffsetCommitRequestPartition), default=())


@message
class OffsetCommitRequest(Message):
    """Generation -1 with an empty `member_id` is a commit from outside the group. `retention_time_ms` is -1: the broker's own."""

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, default=-1)
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, since=7, nullable_since=7, default=None)
    retention_time_ms: int = wire(INT64, until=4, default=-1, ignorable=True)
    topics: Sequence[OffsetCommitRequestTopic] = wire(ArrayOf(OffsetCommitRequestTopic), default=())


@message
class OffsetCommitResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetCommitResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetCommitResponsePartition] = wire(ArrayOf(OffsetCommitResponsePartition), default=())


@message
class OffsetCommitResponse(Message):
    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    topics: Sequence[OffsetCommitResponseTopic] = wire(ArrayOf(OffsetCommitResponseTopic), default=())


OFFSET_COMMIT = Api(ApiKey.OFFSET_COMMIT, 2, 9, 8, OffsetCommitRequest, OffsetCommitResponse)
"""v10, which names topics by id, is unstable in Kafka 4.1: no broker offers it by default."""
