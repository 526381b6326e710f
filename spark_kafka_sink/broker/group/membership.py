"""Members that join and leave: JoinGroup, LeaveGroup, timeouts, loading (Kafka's GroupMetadataManager). Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.group import rebalance
from spark_kafka_sink.broker.group.classic_group import (
    SYNC_TIMER,
    ClassicGroup,
    Effects,
    GroupMember,
    GroupState,
    InitialDelay,
    JoinReply,
    Protocols,
    SessionTimeout,
    Store,
    TimerKey,
)
from spark_kafka_sink.broker.group.group_log import metadata_of
from spark_kafka_sink.protocol.apis.groups import JoinGroupResponse, MemberIdentity, MemberResponse, SyncGroupResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


UNKNOWN_MEMBER_ID: Final = ""
"""The member id of a member that has none yet, and of administrators, which remove static members by instance id."""

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""The maximum wait of a new member for its first generation (`CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`)."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """A client that wants to join. `new_member_id`: the id that it gets if it has none. Timeouts are in ms.

    requires_known_member_id: from v4 on (KIP-394). may_skip_assignment: from v9 on (KIP-814).
    """

    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool
    may_skip_assignment: bool
    reason: str
    reply: JoinReply


def join(group: ClassicGroup, joiner: Joiner, effects: Effects) -> None:
    if not _has_room(group, joiner.member_id):
        _refuse(joiner, ErrorCode.GROUP_MAX_SIZE_REACHED, effects, UNKNOWN_MEMBER_ID)
        group.remove(joiner.member_id)
        effects.end_session(joiner.member_id)
        rebalance.complete_if_all_joined(group, effects)
    elif not group.supports(joiner.protocol_type, joiner.protocols):
        _refuse(joiner, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, effects)
    elif joiner.member_id == UNKNOWN_MEMBER_ID:
        _join_without_id(group, joiner, effects)
    else:
        _join_with_id(group, joiner, effects)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Returns whether another member may join (`acceptJoiningMember`). During a join phase, only joined members count."""
    if group.is_empty:
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        joined = sum(each.awaits_join for each in group.members.values())
        return (member is not None and member.awaits_join) or joined < group.config.group_max_size
    return member is not None or len(group.members) < group.config.group_max_size


def _refuse(joiner: Joiner, code: ErrorCode, effects: Effects, member_id: str | None = None) -> None:
    body = JoinGroupResponse(error_code=code, member_id=joiner.member_id if member_id is None else member_id)
    effects.answer(joiner.reply, body)


# Without a member id


def _join_without_id(group: ClassicGroup, joiner: Joiner, effects: Effects) -> None:
    if joiner.group_instance_id is not None:
        existing = group.static_members.get(joiner.group_instance_id)
        if existing is None:
            _add(group, joiner, joiner.new_member_id, effects)
        else:
            _replace_static(group, joiner, group.members[existing], effects)
    elif joiner.requires_known_member_id:
        group.pending_join.add(joiner.new_member_id)
        effects.expect_within(joiner.new_member_id, joiner.session_timeout_ms)
        _refuse(joiner, ErrorCode.MEMBER_ID_REQUIRED, effects, joiner.new_member_id)
    else:
        _add(group, joiner, joiner.new_member_id, effects)


def _add(group: ClassicGroup, joiner: Joiner, member_id: str, effects: Effects) -> None:
    member = GroupMember(
        member_id=member_id,
        group_instance_id=joiner.group_instance_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        session_timeout_ms=joiner.session_timeout_ms,
        protocol_type=joiner.protocol_type,
        protocols=joiner.protocols,
        is_new=True,
        join_reply=joiner.reply,
    )
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    group.add(member)
    # A connection that waits for this response is muted, so its end goes unnoticed. Without a limit, a client that times out and
    # returns as another member would leave dead members behind.
    effects.expect_within(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance.rebalance_or_complete(group, effects, f"adding new member {member_id}; client reason: {joiner.reason}")


# With a member id


def _join_with_id(group: ClassicGroup, joiner: Joiner, effects: Effects) -> None:
    if joiner.member_id in group.pending_join:
        # Only dynamic members are asked to come back; Kafka raises an IllegalStateException here.
        if joiner.group_instance_id is not None:
            _refuse(joiner, ErrorCode.UNKNOWN_SERVER_ERROR, effects)
        else:
            _add(group, joiner, joiner.member_id, effects)
        return
    try:
        member = group.member_of(joiner.member_id, joiner.group_instance_id)
    except ApiException as error:
        _refuse(joiner, error.code, effects)
        return
    _rejoin(group, joiner, member, effects)


def _rejoin(group: ClassicGroup, joiner: Joiner, member: GroupMember, effects: Effects) -> None:
    # A leader that joins a stable group again wants a new assignment, for example because of new partitions. One without changes
    # may have missed the response to its join. An empty group has no members: `member_of` has raised.
    wants_rebalance = group.state is GroupState.PREPARING_REBALANCE or (
        group.state is GroupState.STABLE and group.is_leader(member.member_id)
    )
    if not wants_rebalance and list(member.protocols.items()) == list(joiner.protocols.items()):
        effects.answer(joiner.reply, rebalance.current_generation(group, member))
        return
    _update(member, joiner, effects)
    reason = f"member {member.member_id} is joining during {group.state.value}; client reason: {joiner.reason}"
    rebalance.rebalance_or_complete(group, effects, reason)


def _update(member: GroupMember, joiner: Joiner, effects: Effects) -> None:
    # The client has most likely given up on the response it waited for. If not, it must not wait forever.
    again = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    rebalance.answer_join(member, again, effects)
    member.protocols = joiner.protocols
    member.rebalance_timeout_ms = joiner.rebalance_timeout_ms
    member.session_timeout_ms = joiner.session_timeout_ms
    member.join_reply = joiner.reply


# Static members that restarted


def _replace_static(group: ClassicGroup, joiner: Joiner, old: GroupMember, effects: Effects) -> None:
    """Replaces a static member. A client that still waits under the old id is fenced."""
    code = ErrorCode.FENCED_INSTANCE_ID
    rebalance.answer_join(old, JoinGroupResponse(error_code=code, protocol_name=None, member_id=old.member_id), effects)
    rebalance.answer_sync(old, SyncGroupResponse(error_code=code), effects)
    leader_before = group.leader
    member = replace(old, member_id=joiner.new_member_id, is_new=False)
    group.swap(old, member)
    effects.end_session(old.member_id)
    effects.expect_heartbeat(member)
    _update(member, joiner, effects)
    reason = f"static member {joiner.group_instance_id} is now {member.member_id}; client reason: {joiner.reason}"
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        _keep_assignment(group, joiner, old, member, leader_before, effects)
    elif group.state is GroupState.PREPARING_REBALANCE:
        rebalance.complete_if_all_joined(group, effects)
    else:
        # After the join phase the leader may already be assigning to the old id.
        rebalance.prepare_rebalance(group, effects, reason)


def _keep_assignment(
    group: ClassicGroup, joiner: Joiner, old: GroupMember, member: GroupMember, leader_before: str | None, effects: Effects
) -> None:
    """Gives the member its old assignment without a rebalance, once the new id is stored."""

    def without_members(member_id: str, error: ErrorCode = ErrorCode.NONE) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=error,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader_before or "",
            member_id=member_id,
        )

    def stored(error: ErrorCode) -> None:
        leads = group.is_leader(member.member_id)
        if error is not ErrorCode.NONE:
            group.swap(member, old)
            effects.end_session(member.member_id)
            effects.expect_heartbeat(old)
            body = without_members(UNKNOWN_MEMBER_ID, error)
        elif joiner.may_skip_assignment:
            body = rebalance.current_generation(group, member)
            body.skip_assignment = leads
        else:
            # The old leader's id, so that a member that led does not consider itself the leader and assign.
            body = without_members(member.member_id)
        rebalance.answer_join(member, body, effects)

    effects.store = Store(metadata_of(group), stored)


def leave(group: ClassicGroup, leaving: Iterable[MemberIdentity], effects: Effects) -> list[MemberResponse]:
    """Removes members, with one rebalance for all that leave together (KIP-345)."""
    responses = []
    for identity in leaving:
        code = ErrorCode.NONE
        try:
            _leave(group, identity, effects)
        except ApiException as error:
            code = error.code
        responses.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
    if any(response.error_code == ErrorCode.NONE for response in responses):
        if group.state is GroupState.PREPARING_REBALANCE:
            rebalance.complete_if_all_joined(group, effects)
        elif not group.is_empty:
            rebalance.rebalance_or_complete(group, effects, "explicit LeaveGroup request")
    return responses


def _leave(group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> None:
    member_id, instance = identity.member_id, identity.group_instance_id
    if member_id in group.pending_join:
        group.remove(member_id)
        effects.end_session(member_id)
        return
    if member_id == UNKNOWN_MEMBER_ID and instance is not None:
        member_id = group.static_members.get(instance, UNKNOWN_MEMBER_ID)
    member = group.member_of(member_id, instance)
    logger.info("Member %s has left group %s; reason: %s", member_id, group.group_id, identity.reason or "not provided")
    _remove(group, member, effects)


def session_expired(group: ClassicGroup, session: SessionTimeout, effects: Effects) -> None:
    """Removes a member that sent no heartbeat in time, or that did not come back with its new id."""
    member = group.members.get(session.member_id)
    is_pending = session.member_id in group.pending_join
    if is_pending:
        group.remove(session.member_id)
    elif member is not None and not member.has_satisfied_heartbeat:
        logger.info("Member %s of group %s has failed: no heartbeat in time", member.member_id, group.group_id)
        _remove(group, member, effects)
    else:
        return
    if group.state is not GroupState.PREPARING_REBALANCE:
        if not is_pending:
            rebalance.rebalance_or_complete(group, effects, f"removing member {session.member_id} on heartbeat expiration")
    elif group.has_all_members_joined():
        rebalance.complete_join(group, effects)


def _remove(group: ClassicGroup, member: GroupMember, effects: Effects) -> None:
    """Removes a member. If it waits for a response, it gets an error and starts over."""
    code = ErrorCode.UNKNOWN_MEMBER_ID
    rebalance.answer_join(member, JoinGroupResponse(error_code=code), effects)
    rebalance.answer_sync(member, SyncGroupResponse(error_code=code), effects)
    group.remove(member.member_id)
    effects.end_session(member.member_id)


def timed_out(group: ClassicGroup, key: TimerKey, initial: InitialDelay | None, effects: Effects) -> None:
    if isinstance(key, SessionTimeout):
        session_expired(group, key, effects)
    elif key == SYNC_TIMER:
        rebalance.sync_timed_out(group, effects)
    elif initial is not None:
        rebalance.initial_delay_over(group, initial, effects)
    else:
        rebalance.complete_join(group, effects)


def loaded(group: ClassicGroup, effects: Effects) -> None:
    """Restarts all sessions. A rebalance shrinks a group that is now too large (`GroupMetadataManager.onLoaded`)."""
    for member in group.members.values():
        effects.expect_heartbeat(member)
    if len(group.members) > group.config.group_max_size:
        rebalance.prepare_rebalance(group, effects, f"a loaded group of {len(group.members)} members is over capacity")


def unloaded(group: ClassicGroup, effects: Effects) -> None:
    """Sends waiting clients to the new coordinator (`GroupMetadataManager.onUnloaded`)."""
    group.transition_to(GroupState.DEAD)
    code = ErrorCode.NOT_COORDINATOR
    for member in group.members.values():
        rebalance.answer_join(member, JoinGroupResponse(error_code=code, member_id=member.member_id), effects)
        rebalance.answer_sync(member, SyncGroupResponse(error_code=code), effects)
