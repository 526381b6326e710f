"""Members go: by their own word, by an administrator's, or because nothing is heard of them. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.group.classic_group import ClassicGroup
from spark_kafka_sink.broker.group.effects import Effects, SessionTimeout
from spark_kafka_sink.broker.group.group_member import GroupMember
from spark_kafka_sink.broker.group.group_state import GroupState
from spark_kafka_sink.broker.group.rebalance import (
    answer_join,
    answer_sync,
    complete_if_all_joined,
    complete_join,
    rebalance_or_complete,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupResponse, MemberIdentity, MemberResponse, SyncGroupResponse

logger = logging.getLogger(__name__)

UNDEFINED = ""
"""In place of a member id: an administrator removes a static member by its instance id."""


def leave(group: ClassicGroup, leaving: Iterable[MemberIdentity], effects: Effects) -> list[MemberResponse]:
    """One rebalance for all who leave together (KIP-345)."""
    responses = [_left(group, identity, effects) for identity in leaving]
    if any(response.error_code == ErrorCode.NONE for response in responses):
        if group.state is GroupState.PREPARING_REBALANCE:
            complete_if_all_joined(group, effects)
        elif not group.is_empty:
            rebalance_or_complete(group, effects, "explicit LeaveGroup request")
    return responses


def _left(group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> MemberResponse:
    code = ErrorCode.NONE
    try:
        _leave(group, identity, effects)
    except ApiException as error:
        code = error.code
    return MemberResponse(identity.member_id, identity.group_instance_id, code)


def _leave(group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> None:
    member_id, instance = identity.member_id, identity.group_instance_id
    if member_id in group.pending_join:
        group.remove(member_id)
        effects.end_session(member_id)
        return
    if member_id == UNDEFINED and instance is not None:
        member_id = group.static_members.get(instance, UNDEFINED)
    member = group.member_of(member_id, instance)
    logger.info("Member %s has left group %s; reason: %s", member_id, group.group_id, identity.reason or "not provided")
    _remove(group, member, effects)


def session_expired(group: ClassicGroup, session: SessionTimeout, effects: Effects) -> None:
    member = group.members.get(session.member_id)
    if session.member_id in group.pending_join:
        _forget_pending(group, session.member_id, effects)
    elif member is not None and not member.has_satisfied_heartbeat:
        logger.info("Member %s of group %s has failed: no heartbeat in time", member.member_id, group.group_id)
        _remove(group, member, effects)
        _go_on(group, effects, f"removing member {member.member_id} on heartbeat expiration")


def _forget_pending(group: ClassicGroup, member_id: str, effects: Effects) -> None:
    """It was given an id and did not come back with it."""
    group.remove(member_id)
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined():
        complete_join(group, effects)


def _go_on(group: ClassicGroup, effects: Effects, reason: str) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        rebalance_or_complete(group, effects, reason)
    elif group.has_all_members_joined():
        complete_join(group, effects)


def _remove(group: ClassicGroup, member: GroupMember, effects: Effects) -> None:
    """If it waits for an answer it is told to begin anew."""
    code = ErrorCode.UNKNOWN_MEMBER_ID
    answer_join(member, JoinGroupResponse(error_code=code), effects)
    answer_sync(member, SyncGroupResponse(error_code=code), effects)
    group.remove(member.member_id)
    effects.end_session(member.member_id)
