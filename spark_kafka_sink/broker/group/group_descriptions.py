"""Groups as an administrator sees them. Pure."""

from __future__ import annotations

from collections.abc import Collection

from spark_kafka_sink.broker.group.classic_group import ClassicGroup
from spark_kafka_sink.broker.group.group_member import GroupMember
from spark_kafka_sink.broker.group.group_state import GroupState
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import DescribedGroup, DescribedGroupMember, ListedGroup

GROUP_TYPE = "classic"


def listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, GROUP_TYPE)


def passes(group: ClassicGroup, states: Collection[str], types: Collection[str]) -> bool:
    """Case does not count; empty filters let everything through, unknown names nothing (`GroupMetadataManager.listGroups`)."""
    return _is_among(group.state.value, states) and _is_among(GROUP_TYPE, types)


def _is_among(name: str, wanted: Collection[str]) -> bool:
    return not wanted or name.lower() in {one.strip().lower() for one in wanted}


def described(group: ClassicGroup) -> DescribedGroup:
    """While it is not stable neither the protocol nor subscriptions are told."""
    is_stable = group.state is GroupState.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=tuple(_described_member(member, protocol) for member in group.members.values()),
    )


def _described_member(member: GroupMember, protocol: str) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(protocol, b""),
        member_assignment=member.assignment,
    )


def unknown(group_id: str, *, has_code: bool) -> DescribedGroup:
    """A group that does not exist is dead; with `has_code` (v6, KIP-1043) the answer says what that means, in Kafka's words."""
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if has_code else ErrorCode.NONE,
        error_message=f"Group {group_id} not found." if has_code else None,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
    )
