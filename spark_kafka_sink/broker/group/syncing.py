"""SyncGroup and Heartbeat in a group: assignments are stored and handed out, members show that they live. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.group.classic_group import ClassicGroup
from spark_kafka_sink.broker.group.effects import Effects, Store
from spark_kafka_sink.broker.group.group_member import NO_ASSIGNMENT, GroupMember, SyncReply
from spark_kafka_sink.broker.group.group_metadata import metadata_of
from spark_kafka_sink.broker.group.group_state import GroupState
from spark_kafka_sink.broker.group.rebalance import answer_sync, current_assignment, prepare_rebalance, propagate_error
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import HeartbeatRequest, SyncGroupRequest, SyncGroupResponse


def sync(group: ClassicGroup, request: SyncGroupRequest, reply: SyncReply, effects: Effects) -> None:
    """`GroupMetadataManager.classicGroupSync`."""
    try:
        member = _checked(group, request)
    except ApiException as error:
        effects.answer(reply, SyncGroupResponse(error_code=error.code))
        return
    group.pending_sync.discard(member.member_id)
    if group.state is GroupState.STABLE:
        effects.answer(reply, current_assignment(group, member))
        return
    # What it asked before was given up by the client, most likely; if not, it must not wait for ever.
    answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), effects)
    member.sync_reply = reply
    if group.is_leader(member.member_id):
        given = {assigned.member_id: assigned.assignment for assigned in request.assignments}
        _store_assignments(group, {name: given.get(name, NO_ASSIGNMENT) for name in group.members}, effects)


def _checked(group: ClassicGroup, request: SyncGroupRequest) -> GroupMember:
    member = group.member_of(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiException(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise ApiException(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise ApiException(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def _differ(theirs: str | None, ours: str | None) -> bool:
    return theirs is not None and ours is not None and theirs != ours


def _store_assignments(group: ClassicGroup, assignments: Mapping[str, bytes], effects: Effects) -> None:
    # First stored, then told: a member that works on an assignment is one that a restart finds.
    effects.store = Store(metadata_of(group, assignments), lambda error: _stored(group, assignments, error, effects))


def _stored(group: ClassicGroup, assignments: Mapping[str, bytes], error: ErrorCode, effects: Effects) -> None:
    if error is not ErrorCode.NONE:
        propagate_error(group, effects, error)
        prepare_rebalance(group, effects, f"{error.name} when storing the assignment")
        return
    for member in group.members.values():
        member.assignment = assignments[member.member_id]
        if answer_sync(member, current_assignment(group, member), effects):
            effects.expect_heartbeat(member)
    group.transition_to(GroupState.STABLE)


HEARTBEAT_CODES: Final[Mapping[GroupState, ErrorCode]] = {
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    # A member may show that it lives before the leader has assigned.
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
}
"""An empty group has no members."""


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, effects: Effects) -> ErrorCode:
    """Raises ApiException."""
    member = group.member_of(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiException(ErrorCode.ILLEGAL_GENERATION)
    effects.expect_heartbeat(member)
    return HEARTBEAT_CODES[group.state]
