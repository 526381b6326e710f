"""A group as a record of `__consumer_offsets`, and back (Kafka's GroupCoordinatorRecordHelpers). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_kafka_sink.broker.group.classic_group import ClassicGroup, GroupRules
from spark_kafka_sink.broker.group.group_member import GroupMember
from spark_kafka_sink.broker.group.group_state import GroupState
from spark_kafka_sink.protocol.internal_topics import GroupMetadataValue, MemberMetadata

NO_TIMESTAMP = -1


def metadata_of(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
    """`assignments`: those that are about to hold; None for those that do."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=NO_TIMESTAMP if group.state_since_ms is None else group.state_since_ms,
        members=tuple(
            _metadata(member, group.protocol_name or "", member.assignment if assignments is None else assignments[name])
            for name, member in group.members.items()
        ),
    )


def new_group_metadata(group: ClassicGroup) -> GroupMetadataValue:
    """Of a group that has just been heard of (`newEmptyGroupMetadataRecord`)."""
    return GroupMetadataValue("", 0, None, None, NO_TIMESTAMP if group.state_since_ms is None else group.state_since_ms)


def _metadata(member: GroupMember, protocol: str, assignment: bytes) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.protocols.get(protocol, b""),
        assignment=assignment,
    )


def group_of(group_id: str, value: GroupMetadataValue, wall_ms: Callable[[], int], rules: GroupRules) -> ClassicGroup:
    """The group as it was stored: stable, or empty (`GroupMetadataManager.replay`)."""
    group = ClassicGroup(group_id, wall_ms, rules)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.state_since_ms = None if value.current_state_timestamp == NO_TIMESTAMP else value.current_state_timestamp
    for member in value.members:
        group.add(_member(member, value))
    if value.leader in group.members:
        group.leader = value.leader
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.know_subscriptions()
    return group


def _member(stored: MemberMetadata, group: GroupMetadataValue) -> GroupMember:
    return GroupMember(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
        session_timeout_ms=stored.session_timeout,
        protocol_type=group.protocol_type,
        protocols={group.protocol or "": stored.subscription},
        assignment=stored.assignment,
    )
