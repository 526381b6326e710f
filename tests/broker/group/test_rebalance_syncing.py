"""SyncGroup and Heartbeat: assignments are stored before anybody gets one, and sessions live as long as members do."""

from __future__ import annotations

from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import SyncGroupResponse
from tests.broker.group.world import REBALANCE_MS, SESSION_MS, World


def completing(world: World) -> tuple[str, str]:
    """Leader and follower of generation 1, whose assignments are not there."""
    (leader, _), (follower, _) = world.joining(), world.joining()
    world.timer.advance(0)
    return leader, follower


def test_members_get_their_assignments_when_the_leader_has_assigned() -> None:
    world = World()
    leader, follower = completing(world)
    waiting = world.sync(follower, 1)
    assert waiting.waits
    leading = world.sync(leader, 1, {leader: b"first", follower: b"second"})

    assert leading.answer == SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=b"first")
    assert waiting.answer.assignment == b"second"
    assert world.state() == "Stable"
    assert world.sync(follower, 1).answer.assignment == b"second"


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    world = World()
    leader, follower = completing(world)
    waiting = world.sync(follower, 1)
    world.sync(leader, 1, {leader: b"all"})

    assert waiting.answer == SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=b"")


def test_what_a_follower_assigns_does_not_count() -> None:
    world = World()
    _, follower = completing(world)
    assert world.sync(follower, 1, {follower: b"all mine"}).waits
    assert world.state() == "CompletingRebalance"


def test_a_sync_of_another_generation_member_or_protocol_is_refused() -> None:
    world = World()
    leader, _ = completing(world)

    assert world.sync(leader, 0).error is ErrorCode.ILLEGAL_GENERATION
    assert world.sync(leader, 2).error is ErrorCode.ILLEGAL_GENERATION
    assert world.sync("somebody", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(leader, 1, protocol="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(leader, 1, protocol="range").waits is False


def test_who_waits_for_an_assignment_when_someone_joins_has_to_join_too() -> None:
    world = World()
    leader, follower = completing(world)
    waiting = world.sync(follower, 1)
    world.joining()

    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync(leader, 1, {leader: b"old"}).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_nobody_has_an_assignment_when_one_generation_follows_another_unassigned() -> None:
    world = World()
    members = world.stable(2)
    joined = [world.join(member) for member in members]
    assert {each.answer.generation_id for each in joined} == {2}
    world.joining()

    assert {member.member_assignment for member in world.described().members} == {b""}


def test_a_member_that_waited_for_its_assignment_has_a_session_again() -> None:
    world = World()
    leader, follower = completing(world)
    waiting = world.sync(follower, 1)
    for _ in range(3):
        world.heartbeat(leader, 1)
        world.timer.advance(SESSION_MS - 1)
    assert waiting.waits
    world.sync(leader, 1, {leader: b"1", follower: b"2"})
    world.timer.advance(SESSION_MS - 1)
    world.heartbeat(leader, 1)
    assert world.state() == "Stable"
    world.timer.advance(1)

    assert [member.member_id for member in world.described().members] == [leader]


def test_a_second_sync_of_a_waiting_member_takes_the_place_of_the_first() -> None:
    world = World()
    leader, follower = completing(world)
    first, second = world.sync(follower, 1), world.sync(follower, 1)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(leader, 1, {follower: b"it"})

    assert second.answer.assignment == b"it"


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


def test_who_has_not_synced_when_a_rebalance_begins_may_join_it() -> None:
    world = World()
    leader, follower = completing(world)
    world.sync(leader, 1, {leader: b"1", follower: b"2"})
    for second in range(0, REBALANCE_MS + 10_000, 5000):
        world.heartbeat(leader, 1)
        world.heartbeat(follower, 1)
        if second == REBALANCE_MS - 10_000:
            world.join(leader)
        world.timer.advance(5000)

    assert world.join(follower).answer.generation_id == 2


def test_members_who_have_synced_in_time_stay() -> None:
    world = World()
    members = world.stable(2)
    for _ in range(3 * REBALANCE_MS // 5000):
        assert [world.heartbeat(member, 1) for member in members] == [ErrorCode.NONE, ErrorCode.NONE]
        world.timer.advance(5000)

    assert world.state() == "Stable"


def test_a_member_that_is_silent_for_its_session_is_removed() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.timer.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, 1) is ErrorCode.NONE
    world.timer.advance(1)

    assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group_of_the_next_generation() -> None:
    world = World()
    (member,) = world.stable()
    world.timer.advance(SESSION_MS)

    assert world.state() == "Empty"
    assert world.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(member, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.restarted().state() == "Empty"
    newcomer, joined = world.joining()
    world.timer.advance(0)
    assert (joined.answer.generation_id, joined.answer.leader) == (3, newcomer)


def test_a_heartbeat_of_another_generation_or_member_is_refused() -> None:
    world = World()
    assert world.heartbeat("somebody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = world.stable()
    assert world.heartbeat(member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("somebody", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_may_show_that_it_lives_before_the_leader_has_assigned() -> None:
    world = World()
    leader, follower = completing(world)
    for _ in range(5):
        world.timer.advance(SESSION_MS - 1)
        assert world.heartbeat(leader, 1) is world.heartbeat(follower, 1) is ErrorCode.NONE


def test_a_leader_that_dies_before_it_has_assigned_is_replaced() -> None:
    world = World()
    leader, follower = completing(world)
    waiting = world.sync(follower, 1)
    world.timer.advance(SESSION_MS)

    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(follower).answer.leader == follower
    assert world.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
