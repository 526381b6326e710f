"""SyncGroup and Heartbeat: assignments are stored before anybody gets one, and sessions live as long as members do."""

from __future__ import annotations

from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.group.world import REBALANCE_MS, SESSION_MS, World


def completing(world: World) -> tuple[str, str]:
    """Leader and follower of generation 1, whose assignments are not there."""
    (leader, _), (follower, _) = world.joining(), world.joining()
    world.timer.advance(0)
    return leader, follower


def test_an_assignment_that_cannot_be_stored_counts_for_nobody() -> None:
    world = World()
    leader, follower = completing(world)
    waiting = world.sync(follower, 1)
    world.log.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]
    leading = world.sync(leader, 1, {leader: b"1", follower: b"2"})

    assert leading.error is waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "PreparingRebalance"
    joined = [world.join(member) for member in (leader, follower)]
    assert [each.answer.generation_id for each in joined] == [2, 2]


def test_members_who_do_not_sync_in_time_are_removed() -> None:
    world = World()
    leader, follower = completing(world)
    world.sync(leader, 1, {leader: b"1", follower: b"2"})
    for _ in range(REBALANCE_MS // 5000):
        assert world.state() == "Stable"
        world.heartbeat(leader, 1)
        world.heartbeat(follower, 1)
        world.timer.advance(5000)

    assert world.state() == "PreparingRebalance"
    assert [member.member_id for member in world.described().members] == [leader]


def test_a_member_that_is_silent_for_its_session_is_removed() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.timer.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, 1) is ErrorCode.NONE
    world.timer.advance(1)

    assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
