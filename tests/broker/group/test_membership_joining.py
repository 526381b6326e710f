"""JoinGroup: who comes in, under which id, and when everybody is told of the new generation."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.protocol.apis.groups import JoinGroupResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
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


def test_a_full_group_takes_nobody_more() -> None:
    world = World(BrokerConfig(group_max_size=2))
    leader, follower = world.stable(2)
    assert world.join().answer == JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)

    world.join(leader)
    world.join(follower)
    assert world.described().group_state == "CompletingRebalance"
    assert world.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
