"""JoinGroup: who comes in, under which id, and when everybody is told of the new generation."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupResponse
from tests.broker.group.world import REBALANCE_MS, World


def test_the_first_members_are_waited_for_as_long_as_new_ones_come() -> None:
    world = World(BrokerConfig(group_initial_rebalance_delay_ms=3000))
    _, first = world.joining()
    world.timer.advance(2000)
    _, second = world.joining()
    world.timer.advance(1000)  # the delay is over, but someone came: another one
    assert first.waits
    world.timer.advance(2999)
    assert second.waits
    world.timer.advance(1)

    assert first.answer.generation_id == second.answer.generation_id == 1


def test_the_first_members_are_not_waited_for_longer_than_their_rebalance_timeout() -> None:
    world = World(BrokerConfig(group_initial_rebalance_delay_ms=3000))
    joined = world.join(version=3, rebalance_ms=7000)
    for _ in range(6):
        world.timer.advance(1000)
        world.join(version=3, rebalance_ms=7000)
    assert joined.waits
    # 3 s, then min(3, 4 left), then min(3, 1 left).
    world.timer.advance(1000)

    assert joined.answer.generation_id == 1


def test_a_group_goes_on_without_those_who_do_not_join_in_time() -> None:
    world = World()
    leader, follower = world.stable(2)
    _, joined = world.joining()
    again = world.join(leader)
    for _ in range(REBALANCE_MS // 5000):
        assert joined.waits
        world.heartbeat(follower, 1)  # it lives, but does not join
        world.timer.advance(5000)

    assert [member.member_id for member in again.answer.members] == [leader, joined.answer.member_id]
    assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_who_does_not_join_in_time_is_replaced() -> None:
    world = World()
    leader, follower = world.stable(2)
    newcomer, joined = world.joining()
    again = world.join(follower)
    for _ in range(REBALANCE_MS // 5000):
        world.heartbeat(leader, 1)
        world.timer.advance(5000)

    assert again.answer.leader == follower
    assert [member.member_id for member in again.answer.members] == [follower, newcomer]
    assert joined.answer.leader == follower


def test_the_group_takes_the_assignor_that_most_members_like_best_of_those_that_all_know() -> None:
    world = World()
    range_first = {"range": b"1", "sticky": b"2"}
    world.joining(protocols={"sticky": b"3", "range": b"4"})
    world.joining(protocols={"cooperative": b"0", **range_first})
    _, joined = world.joining(protocols=range_first)
    world.timer.advance(0)

    assert joined.answer.protocol_name == "range"


def test_a_new_member_does_not_wait_for_more_than_five_minutes() -> None:
    world = World()
    (member,) = world.stable()
    joined = world.join(version=3, rebalance_ms=20 * 60 * 1000)
    for _ in range(60):
        assert joined.waits
        world.heartbeat(member, 1)  # it lives, but does not join
        world.timer.advance(5000)

    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.member_id for each in world.described().members] == [member]


def test_a_full_group_takes_nobody_more() -> None:
    world = World(BrokerConfig(group_max_size=2))
    leader, follower = world.stable(2)
    assert world.join().answer == JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)

    world.join(leader)
    world.join(follower)
    assert world.described().group_state == "CompletingRebalance"
    assert world.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_that_cannot_be_stored_is_not_made() -> None:
    world = World()
    world.log.refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.join().answer == JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert world.coordinator.list_groups() == []
