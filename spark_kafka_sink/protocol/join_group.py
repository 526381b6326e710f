"""JoinGroup (11): a consumer enters its group or takes part in its rebalance; the answer waits for the other members."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, BYTES, INT16, INT32, STRING, ArrayOf


@message
class JoinGroupRequestProtocol(Message):
    """An assignor, by preference, with the member's subscription as that assignor understands it."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message
class JoinGroupRequest(Message):
    """An empty `member_id` is a new member; from v4 it is sent back with an id to join again (MEMBER_ID_REQUIRED, KIP-394).

    `group_instance_id` is a static member's (KIP-345). `rebalance_timeout_ms` is -1 in v0, which has the session's for it.
    """

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1, ignorable=True)
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, since=5, nullable_since=5, default=None)
    protocol_type: str = wire(STRING, default="")
    protocols: Sequence[JoinGroupRequestProtocol] = wire(ArrayOf(JoinGroupRequestProtocol), default=())
    reason: str | None = wire(STRING, since=8, nullable_since=8, default=None, ignorable=True)


@message
class JoinGroupResponseMember(Message):
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    metadata: bytes = wire(BYTES, default=b"")


@message
class JoinGroupResponse(Message):
    """Only the leader gets `members`. `skip_assignment`: the leader need not assign (KIP-814)."""

    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, since=7, nullable_since=7, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable_since=7, default="")
    leader: str = wire(STRING, default="")
    skip_assignment: bool = wire(BOOLEAN, since=9, default=False)
    member_id: str = wire(STRING, default="")
    members: Sequence[JoinGroupResponseMember] = wire(ArrayOf(JoinGroupResponseMember), default=())


JOIN_GROUP = Api(ApiKey.JOIN_GROUP, 0, 9, 6, JoinGroupRequest, JoinGroupResponse)
