"""What a timer of a group does when it runs out, and what ends a group's waiting at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_kafka_sink.broker.group.classic_group import ClassicGroup
from spark_kafka_sink.broker.group.effects import Effects, InitialDelay, JoinTimeout, SessionTimeout, SyncTimeout, Timeout
from spark_kafka_sink.broker.group.group_state import GroupState
from spark_kafka_sink.broker.group.leaving import session_expired
from spark_kafka_sink.broker.group.rebalance import (
    answer_join,
    answer_sync,
    initial_delay_over,
    join_timed_out,
    prepare_rebalance,
    sync_timed_out,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupResponse, SyncGroupResponse

_TIMED_OUT: Final[Mapping[type, Callable[[ClassicGroup, Any, Effects], None]]] = {
    SessionTimeout: session_expired,
    InitialDelay: initial_delay_over,
    JoinTimeout: join_timed_out,
    SyncTimeout: sync_timed_out,
}


def timed_out(group: ClassicGroup, timeout: Timeout, effects: Effects) -> None:
    _TIMED_OUT[type(timeout)](group, timeout, effects)


def loaded(group: ClassicGroup, effects: Effects) -> None:
    """Sessions begin anew; a group that is now too large is cut down by a rebalance (`GroupMetadataManager.onLoaded`)."""
    for member in group.members.values():
        effects.expect_heartbeat(member)
    if len(group.members) > group.rules.max_size:
        prepare_rebalance(group, effects, f"a loaded group of {len(group.members)} members is over capacity")


def unloaded(group: ClassicGroup, effects: Effects) -> None:
    """This broker is no longer the coordinator: who waits must look for it (`GroupMetadataManager.onUnloaded`)."""
    group.transition_to(GroupState.DEAD)
    code = ErrorCode.NOT_COORDINATOR
    for member in group.members.values():
        answer_join(member, JoinGroupResponse(error_code=code, member_id=member.member_id), effects)
        answer_sync(member, SyncGroupResponse(error_code=code), effects)
