"""OffsetDelete (47): forgets how far a group has read some partitions (KIP-496)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import NEVER_FLEXIBLE, Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, STRING, ArrayOf


@message
class OffsetDeleteRequestPartition(Message):
    partition_index: int = wire(INT32)


@message
class OffsetDeleteRequestTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteRequestPartition] = wire(ArrayOf(OffsetDeleteRequestPartition), default=())


@message
class OffsetDeleteRequest(Message):
    group_id: str = wire(STRING)
    topics: Sequence[OffsetDeleteRequestTopic] = wire(ArrayOf(OffsetDeleteRequestTopic), default=())


@message
class OffsetDeleteResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetDeleteResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteResponsePartition] = wire(ArrayOf(OffsetDeleteResponsePartition), default=())


@message
class OffsetDeleteResponse(Message):
    error_code: int = wire(INT16, default=0)
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[OffsetDeleteResponseTopic] = wire(ArrayOf(OffsetDeleteResponseTopic), default=())


OFFSET_DELETE = Api(ApiKey.OFFSET_DELETE, 0, 0, NEVER_FLEXIBLE, OffsetDeleteRequest, OffsetDeleteResponse)
