"""Rebalances, from one generation of a group to the next: members join, then get their assignments. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.group.classic_group import (
    JOIN_TIMER,
    NO_ASSIGNMENT,
    SYNC_TIMER,
    ClassicGroup,
    Effects,
    GroupMember,
    GroupState,
    InitialDelay,
    Store,
    SyncReply,
)
from spark_kafka_sink.broker.group.group_log import metadata_of
from spark_kafka_sink.protocol.apis.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


def rebalance_or_complete(group: ClassicGroup, effects: Effects, reason: str) -> None:
    """Implements Kafka's `maybePrepareRebalanceOrCompleteJoin`: a member came, changed or left."""
    if group.can_rebalance:
        prepare_rebalance(group, effects, reason)
    else:
        complete_if_all_joined(group, effects)


def prepare_rebalance(group: ClassicGroup, effects: Effects, reason: str) -> None:
    """Starts a rebalance, in which all members must join again. Those that wait for an assignment get an error."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        propagate_error(group, effects, ErrorCode.REBALANCE_IN_PROGRESS)
    effects.cancel_timer(SYNC_TIMER)
    is_initial = group.is_empty
    group.transition_to(GroupState.PREPARING_REBALANCE)
    logger.info("Preparing to rebalance group %s with old generation %d (reason: %s)", group.group_id, group.generation, reason)
    if is_initial:
        delay = group.config.group_initial_rebalance_delay_ms
        remaining = max(group.rebalance_timeout_ms() - delay, 0)
        effects.set_timer(JOIN_TIMER, delay, InitialDelay(delay, remaining))
    elif group.has_all_members_joined():
        complete_join(group, effects)
    else:
        effects.set_timer(JOIN_TIMER, group.rebalance_timeout_ms())


def complete_if_all_joined(group: ClassicGroup, effects: Effects) -> None:
    """Completes the join phase if all have joined. The first rebalance of a group always takes its whole delay."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_members_joined()
    ):
        complete_join(group, effects)


def initial_delay_over(group: ClassicGroup, over: InitialDelay, effects: Effects) -> None:
    if not group.new_member_added or over.remaining_ms == 0:
        complete_join(group, effects)
        return
    group.new_member_added = False
    delay = min(group.config.group_initial_rebalance_delay_ms, over.remaining_ms)
    effects.set_timer(JOIN_TIMER, delay, InitialDelay(delay, max(over.remaining_ms - over.delay_ms, 0)))


def complete_join(group: ClassicGroup, effects: Effects) -> None:
    """Starts a generation of the members that have joined, and of static members, which have their session timeout to return."""
    effects.cancel_timer(JOIN_TIMER)
    for member in list(group.members.values()):
        if not member.awaits_join and member.group_instance_id is None:
            logger.info("Group %s removed member %s, which did not rejoin", group.group_id, member.member_id)
            group.remove(member.member_id)
            effects.end_session(member.member_id)
    if group.members and not group.elect_joined_leader():
        # No member has joined. Wait until their sessions expire or one of them joins.
        logger.info("Group %s could not complete its rebalance because no member rejoined", group.group_id)
        effects.set_timer(JOIN_TIMER, group.rebalance_timeout_ms())
        return
    group.next_generation()
    if group.is_empty:
        logger.info("Group %s with generation %d is now empty", group.group_id, group.generation)
        # If it cannot be stored, a restart finds the members of the previous generation, whose sessions expire: nothing is lost.
        effects.store = Store(metadata_of(group), lambda error: None)
        return
    logger.info("Stabilized group %s generation %d with %d members", group.group_id, group.generation, len(group.members))
    for member in group.members.values():
        answer_join(member, current_generation(group, member), effects)
        effects.expect_heartbeat(member)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    effects.set_timer(SYNC_TIMER, group.rebalance_timeout_ms())


def current_generation(group: ClassicGroup, member: GroupMember) -> JoinGroupResponse:
    """Returns the response for a member of the current generation. The leader's lists all members."""
    protocol = group.protocol_name or ""
    everybody = tuple(
        JoinGroupResponseMember(each.member_id, each.group_instance_id, each.protocols.get(protocol, b""))
        for each in (group.members.values() if group.is_leader(member.member_id) else ())
    )
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=everybody,
    )


def sync_timed_out(group: ClassicGroup, effects: Effects) -> None:
    """Continues without the members that have not requested their assignment in time (KAFKA-13435)."""
    overdue = list(group.pending_sync)
    if not overdue:
        return
    for member_id in overdue:
        group.remove(member_id)
        effects.end_session(member_id)
    prepare_rebalance(group, effects, f"removing {', '.join(overdue)} on pending sync request expiration")


def answer_join(member: GroupMember, body: JoinGroupResponse, effects: Effects) -> None:
    if member.join_reply is not None:
        effects.answer(member.join_reply, body)
        member.join_reply = None


def answer_sync(member: GroupMember, body: SyncGroupResponse, effects: Effects) -> bool:
    """Answers a member's SyncGroup. Returns whether it waited for that."""
    if member.sync_reply is None:
        return False
    effects.answer(member.sync_reply, body)
    member.sync_reply = None
    return True


def current_assignment(group: ClassicGroup, member: GroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)


def propagate_error(group: ClassicGroup, effects: Effects, code: ErrorCode) -> None:
    """Sends an error to all members that wait for an assignment, and drops all assignments.

    Their sessions restart, because they had none while waiting.
    """
    for member in group.members.values():
        member.assignment = NO_ASSIGNMENT
        if answer_sync(member, SyncGroupResponse(error_code=code), effects):
            effects.expect_heartbeat(member)


def sync(group: ClassicGroup, request: SyncGroupRequest, reply: SyncReply, effects: Effects) -> None:
    """Implements `GroupMetadataManager.classicGroupSync`."""
    try:
        member = _checked(group, request)
    except ApiException as error:
        effects.answer(reply, SyncGroupResponse(error_code=error.code))
        return
    group.pending_sync.discard(member.member_id)
    if group.state is GroupState.STABLE:
        effects.answer(reply, current_assignment(group, member))
        return
    # The client has most likely given up on its previous request. If not, it must not wait forever.
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
    def stored(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            propagate_error(group, effects, error)
            prepare_rebalance(group, effects, f"{error.name} when storing the assignment")
            return
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
            if answer_sync(member, current_assignment(group, member), effects):
                effects.expect_heartbeat(member)
        group.transition_to(GroupState.STABLE)

    # Stored first: a restart must find every member that works on an assignment.
    effects.store = Store(metadata_of(group, assignments), stored)


HEARTBEAT_CODES: Final[Mapping[GroupState, ErrorCode]] = {
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    # A member may send heartbeats before the leader has assigned.
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
}
"""Raises UNKNOWN_MEMBER_ID: an empty group has no members."""


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, effects: Effects) -> ErrorCode:
    """Returns NONE or REBALANCE_IN_PROGRESS. Raises ApiException."""
    member = group.member_of(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiException(ErrorCode.ILLEGAL_GENERATION)
    effects.expect_heartbeat(member)
    return HEARTBEAT_CODES[group.state]
