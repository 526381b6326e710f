"""JoinGroup: who comes in, under which id, and when everybody is told of the new generation."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupResponse, JoinGroupResponseMember
from tests.broker.group.world import REBALANCE_MS, SESSION_MS, World


def test_a_new_member_is_sent_back_with_an_id_and_joins_with_it() -> None:
    world = World()
    first = world.join()
    assert first.answer == JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="member-1")

    joined = world.join("member-1")
    assert joined.waits
    world.timer.advance(0)

    assert joined.answer == JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="member-1",
        member_id="member-1",
        members=(JoinGroupResponseMember("member-1", None, b"range of a member"),),
    )
    assert world.state() == "CompletingRebalance"


def test_before_v4_nobody_is_sent_back() -> None:
    world = World()
    joined = world.join(version=3)
    world.timer.advance(0)

    assert (joined.answer.member_id, joined.answer.generation_id) == ("member-1", 1)


def test_only_the_leader_is_told_who_is_in_the_group() -> None:
    world = World()
    (one, joined_one), (other, joined_other) = world.joining(), world.joining()
    world.timer.advance(0)

    assert joined_one.answer.leader == joined_other.answer.leader == one
    assert [member.member_id for member in joined_one.answer.members] == [one, other]
    assert joined_other.answer.members == ()


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


def test_a_group_waits_for_those_who_were_in_it() -> None:
    world = World()
    leader, follower = world.stable(2)
    newcomer, joined = world.joining()
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    first = world.join(leader)
    assert first.waits
    second = world.join(follower)

    assert first.answer.generation_id == second.answer.generation_id == joined.answer.generation_id == 2
    assert [member.member_id for member in first.answer.members] == [leader, follower, newcomer]


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


def test_who_shares_no_assignor_with_the_group_stays_out() -> None:
    world = World()
    world.stable()
    assert world.join(protocols={"sticky": b""}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols={}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() == "Stable"


def test_a_new_group_needs_a_protocol() -> None:
    assert World().join(protocols={}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert World().join(protocol_type="").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_id_that_was_not_given_out_is_unknown() -> None:
    world = World()
    assert world.join("somebody").answer == JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id="somebody")
    world.stable()
    assert world.join("somebody").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_is_kept_for_the_length_of_a_session() -> None:
    world = World()
    member = world.join().answer.member_id
    world.timer.advance(SESSION_MS - 1)
    other = world.join().answer.member_id
    world.timer.advance(1)

    assert world.join(member).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(other).waits


def test_a_rebalance_waits_for_members_who_have_only_an_id_yet() -> None:
    world = World()
    (leader,) = world.stable()
    pending = world.join().answer.member_id
    joined = world.join(leader)
    assert joined.waits
    world.join(pending)

    assert [member.member_id for member in joined.answer.members] == [leader, pending]


def test_a_follower_that_joins_again_with_the_same_subscription_gets_its_generation_again() -> None:
    world = World()
    leader, follower = world.stable(2)

    assert world.join(follower).answer.generation_id == 1
    assert world.state() == "Stable"
    assert world.join(leader).waits
    assert world.state() == "PreparingRebalance"


def test_a_follower_with_another_subscription_makes_a_rebalance() -> None:
    world = World()
    _, follower = world.stable(2)
    assert world.join(follower, protocols={"range": b"other topics"}).waits
    assert world.state() == "PreparingRebalance"


def test_while_assignments_are_awaited_a_join_with_the_same_subscription_is_answered_again() -> None:
    world = World()
    (leader, _), (follower, _) = world.joining(), world.joining()
    world.timer.advance(0)

    assert [len(world.join(member).answer.members) for member in (leader, follower)] == [2, 0]
    assert world.join(follower, protocols={"range": b"other topics"}).waits
    assert world.state() == "PreparingRebalance"


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first() -> None:
    world = World()
    leader, _ = world.stable(2)
    first = world.join(leader)
    second = world.join(leader)

    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits


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


def test_a_loaded_group_that_is_too_large_loses_those_who_join_last() -> None:
    world = World()
    members = world.stable(3)
    world.config = BrokerConfig(group_max_size=2)
    world = world.restarted()
    assert world.state() == "PreparingRebalance"

    first, second, third = (world.join(member) for member in members)
    assert third.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.answer.generation_id == second.answer.generation_id == 2


def test_a_group_that_cannot_be_stored_is_not_made() -> None:
    world = World()
    world.log.refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.join().answer == JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert world.coordinator.list_groups() == []
