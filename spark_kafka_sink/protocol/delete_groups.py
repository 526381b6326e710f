"""DeleteGroups (42): consumer groups without members, and their offsets."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, STRING, ArrayOf


@message
class DeleteGroupsRequest(Message):
    groups_names: Sequence[str] = wire(ArrayOf(STRING), default=())


@message
class DeletableGroupResult(Message):
    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@message
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[DeletableGroupResult] = wire(ArrayOf(DeletableGroupResult), default=())


DELETE_GROUPS = Api(ApiKey.DELETE_GROUPS, 0, 2, 2, DeleteGroupsRequest, DeleteGroupsResponse)
