"""DescribeGroups (15): state and members of classic groups."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.metadata import NO_AUTHORIZED_OPERATIONS
from spark_kafka_sink.protocol.wire_types import BOOLEAN, BYTES, INT16, INT32, STRING, ArrayOf


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
    """`protocol_data` is the assignor; `group_state` one of Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""

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
