"""Heartbeat (12): a member of a group is alive, and learns of a rebalance."""

from __future__ import annotations

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, STRING


@message
class HeartbeatRequest(Message):
    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)


@message
class HeartbeatResponse(Message):
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)


HEARTBEAT = Api(ApiKey.HEARTBEAT, 0, 4, 4, HeartbeatRequest, HeartbeatResponse)
