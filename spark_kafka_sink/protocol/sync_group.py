"""SyncGroup (14): the leader of a group hands in who gets what, every member gets its own share."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BYTES, INT16, INT32, STRING, ArrayOf


@message
class SyncGroupRequestAssignment(Message):
    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@message
class SyncGroupRequest(Message):
    """Only the leader has `assignments`."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)
    protocol_type: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    assignments: Sequence[SyncGroupRequestAssignment] = wire(ArrayOf(SyncGroupRequestAssignment), default=())


@message
class SyncGroupResponse(Message):
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    protocol_type: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    assignment: bytes = wire(BYTES, default=b"")


SYNC_GROUP = Api(ApiKey.SYNC_GROUP, 0, 5, 4, SyncGroupRequest, SyncGroupResponse)
