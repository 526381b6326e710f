"""LeaveGroup (13): members leave their group; from v3 several at once (KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, STRING, ArrayOf


@message
class MemberIdentity(Message):
    """A static member may leave by `group_instance_id` with an empty `member_id`."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable_since=0, default=None)
    reason: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)


@message
class LeaveGroupRequest(Message):
    """Up to v2 one member in `member_id`, from v3 `members`."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, until=2, default="")
    members: Sequence[MemberIdentity] = wire(ArrayOf(MemberIdentity), since=3, default=())


@message
class MemberResponse(Message):
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable_since=0)
    error_code: int = wire(INT16)


@message
class LeaveGroupResponse(Message):
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    members: Sequence[MemberResponse] = wire(ArrayOf(MemberResponse), since=3, default=())


LEAVE_GROUP = Api(ApiKey.LEAVE_GROUP, 0, 5, 4, LeaveGroupRequest, LeaveGroupResponse)
