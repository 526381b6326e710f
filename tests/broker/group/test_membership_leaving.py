"""LeaveGroup: one or several go at once, also by the word of an administrator, and who waits is not forgotten."""

from __future__ import annotations

from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.group.world import World


def test_the_others_share_what_a_member_had_who_leaves() -> None:
    world = World()
    leader, follower = world.stable(2)
    assert world.leave(follower) == [ErrorCode.NONE]
    assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(leader).answer.generation_id == 2


def test_several_leave_with_one_rebalance() -> None:
    world = World()
    leader, *others = world.stable(3)
    assert world.leave(*others, "somebody") == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.join(leader).answer.generation_id == 2


def test_when_nobody_of_those_is_known_nothing_happens() -> None:
    world = World()
    assert world.leave("somebody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    world.stable()
    assert world.leave("somebody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.state() == "Stable"


def test_the_last_to_leave_makes_the_group_empty() -> None:
    world = World()
    world.leave(*world.stable(2))

    assert world.state() == "Empty"
    assert world.described().protocol_type == "consumer"
    assert world.timer.pending() == 1  # the check of what has expired; no session is left


def test_the_last_whom_a_rebalance_waits_for_may_leave() -> None:
    world = World()
    leader, follower = world.stable(2)
    joined = world.join(leader)
    world.leave(follower)

    assert joined.answer.generation_id == 2


def test_a_member_may_leave_while_it_waits() -> None:
    world = World()
    leader, follower = world.stable(2)
    joined = world.join(leader)
    world.leave(leader)
    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID

    _, other = world.joining()
    assert world.join(follower).answer.generation_id == other.answer.generation_id == 2
    synced = world.sync(other.answer.member_id, 2)
    world.leave(other.answer.member_id)
    assert synced.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_has_only_an_id_yet_may_leave_with_it() -> None:
    world = World()
    (leader,) = world.stable()
    pending = world.join().answer.member_id
    joined = world.join(leader)
    assert joined.waits
    assert world.leave(pending) == [ErrorCode.NONE]

    assert joined.answer.generation_id == 2
    assert world.join(pending).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    world = World()
    world.join(instance="reader-1")
    world.timer.advance(0)

    assert world.leave("", instance="reader-2") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.leave("", instance=None) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.leave("", instance="reader-1") == [ErrorCode.NONE]
    assert world.state() == "Empty"


def test_another_members_id_with_an_instance_is_fenced() -> None:
    world = World()
    world.join(instance="reader-1")
    world.timer.advance(0)

    assert world.leave("somebody", instance="reader-1") == [ErrorCode.FENCED_INSTANCE_ID]
