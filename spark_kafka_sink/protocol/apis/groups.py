"""Consumer groups with the classic protocol: the requests of members, and the administration of groups."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.apis.metadata import NO_AUTHORIZED_OPERATIONS
from spark_kafka_sink.protocol.fields import BOOLEAN, BYTES, INT16, INT32, STRING, ArrayOf, Message, message, wire

# JoinGroup (11): a consumer joins its group or its rebalance. The response waits for the other members.


@message
class JoinGroupRequestProtocol(Message):
    """An assignor, in order of preference, with the member's subscription in the assignor's format."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message
class JoinGroupRequest(Message):
    """A request to join. A new member has an empty `member_id`; from v4 on it must join again with the id it is given.

    The error for that is MEMBER_ID_REQUIRED (KIP-394). `group_instance_id` is a static member's (KIP-345). `rebalance_timeout_ms`
    is -1 in v0, which uses the session timeout instead.
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
    """The response. Only the leader gets `members`. `skip_assignment`: the leader need not assign (KIP-814)."""

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


# SyncGroup (14): the leader of a group sends all assignments, and every member gets its own.


@message
class SyncGroupRequestAssignment(Message):
    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@message
class SyncGroupRequest(Message):
    """A request for an assignment. Only the leader sends `assignments`."""

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


# Heartbeat (12): a member shows that it is alive and learns of a rebalance.


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


# LeaveGroup (13): members leave their group; from v3 on several at once (KIP-345).


@message
class MemberIdentity(Message):
    """A member that leaves. A static member may use `group_instance_id` with an empty `member_id`."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable_since=0, default=None)
    reason: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)


@message
class LeaveGroupRequest(Message):
    """A request to leave: up to v2 one member in `member_id`, from v3 on `members`."""

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


# DescribeGroups (15): state and members of classic groups.


@message
class DescribeGroupsRequest(Message):
    groups: Sequence[str] = wire(ArrayOf(STRING), default=())
    include_authorized_operations: bool = wire(BOOLEAN, since=3, default=False)


@message
class DescribedGroupMember(Message):
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=4, nullable_since=4, default=None, ignorable=True)
    client_id: str = wire(STRING, default="")
    client_host: str = wire(STRING, default="")
    member_metadata: bytes = wire(BYTES, default=b"")
    member_assignment: bytes = wire(BYTES, default=b"")


@message
class DescribedGroup(Message):
    """A group. `protocol_data` is the assignor. `group_state`: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=6, nullable_since=6, default=None)
    group_id: str = wire(STRING, default="")
    group_state: str = wire(STRING, default="")
    protocol_type: str = wire(STRING, default="")
    protocol_data: str = wire(STRING, default="")
    members: Sequence[DescribedGroupMember] = wire(ArrayOf(DescribedGroupMember), default=())
    authorized_operations: int = wire(INT32, since=3, default=NO_AUTHORIZED_OPERATIONS)


@message
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    groups: Sequence[DescribedGroup] = wire(ArrayOf(DescribedGroup), default=())


DESCRIBE_GROUPS = Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5, DescribeGroupsRequest, DescribeGroupsResponse)


# ListGroups (16): the groups that a broker coordinates.


@message
class ListGroupsRequest(Message):
    """A request for groups. Empty filters match everything."""

    states_filter: Sequence[str] = wire(ArrayOf(STRING), since=4, default=())
    types_filter: Sequence[str] = wire(ArrayOf(STRING), since=5, default=())


@message
class ListedGroup(Message):
    """A group. `group_type`: classic, consumer, share or streams."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, default="", ignorable=True)
    group_type: str = wire(STRING, since=5, default="", ignorable=True)


@message
class ListGroupsResponse(Message):
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    groups: Sequence[ListedGroup] = wire(ArrayOf(ListedGroup), default=())


LIST_GROUPS = Api(ApiKey.LIST_GROUPS, 0, 5, 3, ListGroupsRequest, ListGroupsResponse)


# DeleteGroups (42): consumer groups without members, and their offsets.


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
