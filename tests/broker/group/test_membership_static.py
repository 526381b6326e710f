"""Static members (KIP-345): a restart keeps place and assignment, and fences whoever else says that he is that instance."""

from __future__ import annotations

from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupResponse
from tests.broker.group.world import RANGE, SESSION_MS, World


def stable_static(world: World) -> tuple[str, str]:
    """Leader `a` and follower `b` of a stable generation 1."""
    joined = [world.join(instance=instance) for instance in ("a", "b")]
    world.timer.advance(0)
    leader, follower = (each.answer.member_id for each in joined)
    world.sync(leader, 1, {leader: b"1", follower: b"2"})
    world.sync(follower, 1)
    return leader, follower


def test_a_static_member_needs_no_second_join_for_its_id() -> None:
    world = World()
    joined = world.join(instance="a")
    world.timer.advance(0)

    assert joined.answer.generation_id == 1
    assert joined.answer.members[0].group_instance_id == "a"


def test_an_instance_that_was_restarted_keeps_its_assignment_without_a_rebalance() -> None:
    world = World()
    leader, follower = stable_static(world)
    again = world.join(instance="b")

    assert again.answer.generation_id == 1
    assert again.answer.member_id not in {leader, follower}
    assert (again.answer.leader, again.answer.skip_assignment) == (leader, False)
    assert world.sync(again.answer.member_id, 1, instance="b").answer.assignment == b"2"
    assert world.state() == "Stable"
    assert world.heartbeat(leader, 1) is ErrorCode.NONE


def test_an_instance_that_was_restarted_lives_as_long_as_it_shows_that() -> None:
    world = World()
    leader, _ = stable_static(world)
    sessions = world.timer.pending()
    world.join(instance="b")
    assert world.timer.pending() == sessions
    world.timer.advance(SESSION_MS - 1)
    world.heartbeat(leader, 1)
    world.timer.advance(1)

    assert [member.member_id for member in world.described().members] == [leader]


def test_an_instance_that_is_restarted_before_it_has_synced_is_waited_for_no_longer() -> None:
    world = World()
    leader, _ = (world.join(instance=instance) for instance in ("a", "b"))
    world.timer.advance(0)
    name = leader.answer.member_id
    world.sync(name, 1, {name: b"1"})
    again = world.join(instance="b").answer.member_id
    world.sync(again, 1)
    for _ in range(24):
        assert world.heartbeat(name, 1) is world.heartbeat(again, 1) is ErrorCode.NONE
        world.timer.advance(5000)


def test_a_leader_that_was_restarted_leads_without_assigning_anew() -> None:
    world = World()
    stable_static(world)
    again = world.join(instance="a").answer

    assert (again.leader, again.skip_assignment, len(again.members)) == (again.member_id, True, 2)


def test_before_v9_a_leader_that_was_restarted_does_not_learn_that_it_leads() -> None:
    world = World()
    leader, _ = stable_static(world)
    again = world.join(instance="a", version=8).answer

    assert (again.leader, again.skip_assignment, again.members) == (leader, False, ())


def test_the_old_id_of_an_instance_is_fenced() -> None:
    world = World()
    _, follower = stable_static(world)
    world.join(instance="b")

    assert world.heartbeat(follower, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(follower, 1, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    assert world.join(follower, instance="b").error is ErrorCode.FENCED_INSTANCE_ID


def test_who_waits_under_the_old_id_is_told() -> None:
    world = World()
    leader, _ = stable_static(world)
    waiting = world.join(leader, instance="a")
    assert waiting.waits
    world.join(instance="a")

    assert waiting.answer == JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, protocol_name=None, member_id=leader)


def test_a_restart_after_the_join_phase_begins_a_new_one() -> None:
    world = World()
    joined = [world.join(instance=instance) for instance in ("a", "b")]
    world.timer.advance(0)
    follower = joined[1].answer.member_id
    waiting = world.sync(follower, 1, instance="b")
    world.join(instance="b")

    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert world.state() == "PreparingRebalance"


def test_a_restart_with_another_assignor_that_wins_makes_a_rebalance() -> None:
    world = World()
    joined = world.join(instance="a", protocols={"sticky": b"", **RANGE})
    world.timer.advance(0)
    assert joined.answer.protocol_name == "sticky"
    member = joined.answer.member_id
    world.sync(member, 1, {member: b"1"})
    again = world.join(instance="a", protocols={**RANGE, "sticky": b""})

    assert (again.answer.generation_id, again.answer.protocol_name) == (2, "range")


def test_a_static_member_keeps_its_place_for_the_length_of_its_session() -> None:
    world = World()
    leader, follower = stable_static(world)
    world.timer.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, 1) is ErrorCode.NONE
    assert world.state() == "Stable"
    world.timer.advance(1)

    assert [member.member_id for member in world.described().members] == [leader]
    assert world.heartbeat(follower, 1, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_does_not_drop_static_members_who_have_not_joined() -> None:
    world = World()
    leader, follower = stable_static(world)
    joined = world.join(leader, instance="a", rebalance_ms=5000)
    for _ in range(12):
        world.heartbeat(follower, 1, instance="b")
        world.timer.advance(5000)

    assert joined.answer.generation_id == 2
    assert [member.member_id for member in joined.answer.members] == [leader, follower]


def test_who_leads_is_known_after_a_restart_of_the_coordinator() -> None:
    world = World()
    absent, leader = stable_static(world)
    joined = world.join(leader, instance="b", protocols={"range": b"other topics"})
    for _ in range(12):
        world.heartbeat(absent, 1, instance="a")
        world.timer.advance(5000)
    assert joined.answer.leader == leader
    world.sync(leader, 2, {leader: b"1"}, instance="b")
    world.coordinator.close()
    world = world.restarted()

    assert world.join(absent, instance="a").answer.leader == leader
    assert world.join(leader, instance="b").waits


def test_when_nobody_joins_the_group_waits_for_its_static_members() -> None:
    world = World()
    leader, follower = stable_static(world)
    world.leave("", instance="a")
    for _ in range(24):
        assert world.heartbeat(follower, 1, instance="b") is ErrorCode.REBALANCE_IN_PROGRESS
        world.timer.advance(5000)

    assert world.join(follower, instance="b").answer.generation_id == 2
    assert world.heartbeat(leader, 1, instance="a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_that_cannot_be_stored_has_not_happened() -> None:
    world = World()
    leader, follower = stable_static(world)
    world.log.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    again = world.join(instance="b").answer

    assert (again.error_code, again.member_id, again.leader) == (ErrorCode.NOT_COORDINATOR, "", leader)
    assert world.heartbeat(follower, 1, instance="b") is ErrorCode.NONE
    assert world.sync(follower, 1, instance="b").answer.assignment == b"2"


def test_an_id_that_was_given_to_a_dynamic_member_is_not_for_a_static_one() -> None:
    world = World()
    member = world.join().answer.member_id
    assert world.join(member, instance="a").error is ErrorCode.UNKNOWN_SERVER_ERROR
