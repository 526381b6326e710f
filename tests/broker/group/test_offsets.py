"""Offsets: who may commit them, what a transaction holds back, and when they are forgotten."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.group.committed_offsets import NO_OFFSET, Committer, TransactionalProducer
from spark_kafka_sink.broker.group.group_coordinator import RETENTION_CHECK_INTERVAL_MS
from spark_kafka_sink.broker.group.offsets import OffsetAndMetadata
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.group.world import GROUP, SESSION_MS, World

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)
OUTSIDER = Committer(GROUP)
PRODUCER = TransactionalProducer(7, 0)
DAY_MS = 24 * 60 * 60 * 1000


def at(world: World, offset: int, **others: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, 3, "note", world.timer.wall_ms(), **others)


def commit(
    world: World, by: Committer = OUTSIDER, version: int = 9, **offsets: int
) -> ErrorCode | Mapping[TopicPartition, ErrorCode]:
    """`a0=5`: offset 5 of partition 0 of topic a. An error of all of them, or by partition."""
    wanted = {TopicPartition(name[0], int(name[1:])): at(world, offset) for name, offset in offsets.items()}
    try:
        return world.coordinator.commit_offsets(by, wanted, version)
    except ApiException as error:
        return error.code


def commit_in_transaction(
    world: World, by: Committer = OUTSIDER, **offsets: int
) -> ErrorCode | Mapping[TopicPartition, ErrorCode]:
    wanted = {TopicPartition(name[0], int(name[1:])): at(world, offset) for name, offset in offsets.items()}
    try:
        return world.coordinator.commit_transactional_offsets(by, PRODUCER, wanted)
    except ApiException as error:
        return error.code


def end(world: World, *, committed: bool) -> None:
    partition = world.log.partition_for(GROUP)
    world.log.mark(partition, PRODUCER.producer_id, committed=committed)
    world.coordinator.complete_transaction(PRODUCER.producer_id, [partition], committed)


def committed(world: World) -> dict[TopicPartition, int]:
    return {one: fetched.offset.offset for one, fetched in world.coordinator.fetch_offsets(GROUP, None).items()}


def groups(world: World) -> list[str]:
    return [group.group_id for group in world.coordinator.list_groups()]


def subscription(*topics: str) -> dict[str, bytes]:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return {"range": struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)}


# Commit and fetch


def test_what_was_committed_is_fetched() -> None:
    world = World()
    assert commit(world, a0=5, b0=9) == {A0: ErrorCode.NONE, B0: ErrorCode.NONE}
    fetched = world.coordinator.fetch_offsets(GROUP, [A0, A1])

    assert (fetched[A0].offset.offset, fetched[A0].offset.leader_epoch, fetched[A0].offset.metadata) == (5, 3, "note")
    assert fetched[A1].offset == NO_OFFSET
    assert committed(world) == {A0: 5, B0: 9}


def test_a_group_that_nobody_knows_has_no_offsets() -> None:
    world = World()
    assert world.coordinator.fetch_offsets(GROUP, None) == {}
    assert world.coordinator.fetch_offsets(GROUP, [A0])[A0].offset == NO_OFFSET


def test_a_commit_makes_a_group_without_members() -> None:
    world = World()
    commit(world, a0=5)
    assert world.state() == "Empty"
    assert world.described().protocol_type == ""


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_nobody_knows_is_told_so_from_v9_on(version: int, code: ErrorCode) -> None:
    world = World()
    assert commit(world, Committer(GROUP, 1, "member-1"), version, a0=5) is code
    assert groups(world) == []


def test_in_a_group_with_members_only_they_commit_and_in_their_generation() -> None:
    world = World()
    (member,) = world.stable()

    assert commit(world, a0=5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, Committer(GROUP, 1, "somebody"), a0=5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, Committer(GROUP, 0, member), a0=5) is ErrorCode.ILLEGAL_GENERATION
    assert commit(world, Committer(GROUP, -1, member), a0=5) is ErrorCode.ILLEGAL_GENERATION
    assert commit(world, Committer(GROUP, 1, member, "a"), a0=5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, Committer(GROUP, 1, member), a0=5) == {A0: ErrorCode.NONE}


def test_while_the_others_join_a_member_may_commit_what_it_has_read() -> None:
    world = World()
    (member,) = world.stable()
    world.joining()
    assert commit(world, Committer(GROUP, 1, member), a0=5) == {A0: ErrorCode.NONE}

    world.join(member)
    assert commit(world, Committer(GROUP, 2, member), a0=5) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_heartbeat() -> None:
    world = World()
    (member,) = world.stable()
    for _ in range(5):
        world.timer.advance(SESSION_MS - 1)
        commit(world, Committer(GROUP, 1, member), a0=5)

    assert world.state() == "Stable"


def test_metadata_that_is_too_large_is_refused_alone() -> None:
    world = World(BrokerConfig(offset_metadata_max_bytes=4))
    offsets = {A0: OffsetAndMetadata(5, -1, "12345", 0), A1: OffsetAndMetadata(6, -1, "1234", 0)}

    assert world.coordinator.commit_offsets(OUTSIDER, offsets, 9) == {
        A0: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        A1: ErrorCode.NONE,
    }
    assert committed(world) == {A1: 6}


def test_what_cannot_be_stored_is_not_committed() -> None:
    world = World()
    world.log.refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert commit(world, a0=5) is ErrorCode.NOT_COORDINATOR
    assert committed(world) == {}
    assert groups(world) == []


# Transactions


def test_a_transactions_offsets_count_when_it_commits() -> None:
    world = World()
    commit(world, a0=1)
    assert commit_in_transaction(world, a0=5, a1=6) == {A0: ErrorCode.NONE, A1: ErrorCode.NONE}
    assert committed(world) == {A0: 1}
    end(world, committed=True)

    assert committed(world) == {A0: 5, A1: 6}
    assert committed(world.restarted()) == {A0: 5, A1: 6}


def test_a_transactions_offsets_are_gone_when_it_aborts() -> None:
    world = World()
    commit(world, a0=1)
    commit_in_transaction(world, a0=5, a1=6)
    end(world, committed=False)

    assert committed(world) == committed(world.restarted()) == {A0: 1}


def test_who_wants_stable_offsets_is_told_to_wait_for_a_transaction() -> None:
    world = World()
    commit(world, a0=1, b0=2)
    commit_in_transaction(world, a0=5)
    for each in (world, world.restarted()):
        stable = each.coordinator.fetch_offsets(GROUP, [A0, B0], require_stable=True)
        assert (stable[A0].error_code, stable[A0].offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, NO_OFFSET)
        assert stable[B0].offset.offset == 2
    end(world, committed=True)

    assert world.coordinator.fetch_offsets(GROUP, None, require_stable=True)[A0].offset.offset == 5


def test_the_marker_of_another_partition_ends_nothing() -> None:
    world = World()
    commit_in_transaction(world, a0=5)
    other = (world.log.partition_for(GROUP) + 1) % 4
    world.coordinator.complete_transaction(PRODUCER.producer_id, [other], True)
    world.coordinator.complete_transaction(PRODUCER.producer_id + 1, [world.log.partition_for(GROUP)], True)

    assert committed(world) == {}


def test_a_later_commit_outlives_a_transaction_that_ends_after_it() -> None:
    world = World()
    commit_in_transaction(world, a0=5)
    commit(world, a0=6)
    end(world, committed=True)

    assert committed(world) == committed(world.restarted()) == {A0: 6}


def test_a_fenced_producer_is_told_by_the_log() -> None:
    world = World()
    world.log.refusals = [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert commit_in_transaction(world, a0=5) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(world, committed=True)
    assert committed(world) == {}


def test_a_transaction_commits_for_its_consumer_in_any_state_of_the_group() -> None:
    world = World()
    leader, _ = world.stable(2)
    assert commit_in_transaction(world, a0=5) == {A0: ErrorCode.NONE}  # a producer that does not name its consumer
    world.joining()
    assert commit_in_transaction(world, Committer(GROUP, 1, leader), a0=5) == {A0: ErrorCode.NONE}
    assert commit_in_transaction(world, Committer(GROUP, 2, leader), a0=5) is ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(world, Committer(GROUP, 1, "somebody"), a0=5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(world, Committer("other", 1, leader), a0=5) is ErrorCode.ILLEGAL_GENERATION


# Deleting


def test_a_group_is_deleted_with_all_that_it_has() -> None:
    world = World()
    commit(world, a0=5)
    commit_in_transaction(world, a0=6, a1=7)
    world.coordinator.delete_group(GROUP)
    end(world, committed=True)

    for each in (world, world.restarted()):
        assert groups(each) == []
        assert committed(each) == {}


def test_a_group_with_members_is_not_deleted() -> None:
    world = World()
    with pytest.raises(ApiException, match="GROUP_ID_NOT_FOUND"):
        world.coordinator.delete_group(GROUP)
    (member,) = world.stable()
    with pytest.raises(ApiException, match="NON_EMPTY_GROUP"):
        world.coordinator.delete_group(GROUP)
    world.leave(member)
    world.coordinator.delete_group(GROUP)
    assert groups(world) == []


def test_offsets_of_topics_that_nobody_subscribes_to_are_deleted() -> None:
    world = World()
    (member,) = world.stable(protocols=subscription("a"))
    commit(world, Committer(GROUP, 1, member), a0=5, b0=6)

    assert world.coordinator.delete_offsets(GROUP, [A0, B0]) == {A0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, B0: ErrorCode.NONE}
    assert committed(world) == committed(world.restarted()) == {A0: 5}


def test_consumers_whose_subscription_cannot_be_read_are_subscribed_to_everything() -> None:
    world = World()
    world.stable(protocols={"range": b"\x00"})
    assert world.coordinator.delete_offsets(GROUP, [A0]) == {A0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_other_groups_are_deleted_when_they_are_empty() -> None:
    world = World()
    with pytest.raises(ApiException, match="GROUP_ID_NOT_FOUND"):
        world.coordinator.delete_offsets(GROUP, [A0])
    world.join(version=3, protocol_type="connect")
    with pytest.raises(ApiException, match="NON_EMPTY_GROUP"):
        world.coordinator.delete_offsets(GROUP, [A0])


def test_a_topic_that_is_deleted_takes_its_offsets_along() -> None:
    world = World()
    commit(world, a0=5, b0=6)
    commit_in_transaction(world, a1=7)
    world.coordinator.delete_topics({"a"})
    end(world, committed=True)

    assert committed(world) == committed(world.restarted()) == {B0: 6}


# Retention


def retained(days: int) -> World:
    return World(BrokerConfig(offsets_retention_ms=days * DAY_MS))


def pass_days(world: World, days: int) -> None:
    world.timer.advance(days * DAY_MS + RETENTION_CHECK_INTERVAL_MS)


def test_a_simple_consumers_offsets_are_kept_for_the_retention_after_the_commit() -> None:
    world = retained(3)
    commit(world, a0=5)
    pass_days(world, 2)
    commit(world, a1=6)
    pass_days(world, 1)
    assert committed(world) == {A1: 6}
    pass_days(world, 2)

    assert groups(world) == groups(world.restarted()) == []


def test_a_groups_offsets_are_kept_while_it_has_members_and_for_the_retention_after() -> None:
    world = retained(1)
    (member,) = world.stable(protocols=subscription("a"))
    commit(world, Committer(GROUP, 1, member), a0=5)
    for _ in range(3 * DAY_MS // 9000):
        world.heartbeat(member, 1)
        world.timer.advance(9000)
    assert committed(world) == {A0: 5}
    world.leave(member)
    world.timer.advance(DAY_MS - RETENTION_CHECK_INTERVAL_MS)
    assert committed(world) == {A0: 5}
    world.timer.advance(2 * RETENTION_CHECK_INTERVAL_MS)

    assert groups(world) == []


def test_offsets_that_a_stable_group_does_not_subscribe_to_expire() -> None:
    world = retained(1)
    (member,) = world.stable(protocols=subscription("a"))
    commit(world, Committer(GROUP, 1, member), a0=5, b0=6)
    for _ in range(DAY_MS // 9000 + 100):
        world.heartbeat(member, 1)
        world.timer.advance(9000)

    assert committed(world) == {A0: 5}


def test_an_offset_keeps_the_expiry_that_an_old_client_asked_for() -> None:
    world = retained(7)
    expiring = at(world, 5, expire_timestamp_ms=world.timer.wall_ms() + DAY_MS)
    world.coordinator.commit_offsets(OUTSIDER, {A0: expiring}, 4)
    world = world.restarted()
    assert committed(world) == {A0: 5}
    pass_days(world, 1)

    assert committed(world) == {}


def test_an_open_transaction_keeps_offsets_and_group() -> None:
    world = retained(1)
    commit_in_transaction(world, a0=6)
    pass_days(world, 2)
    assert groups(world) == [GROUP]
    commit(world, a1=5)
    commit_in_transaction(world, a1=6)
    pass_days(world, 2)
    assert committed(world) == {A1: 5}
    end(world, committed=True)
    assert committed(world) == {A0: 6, A1: 6}
    pass_days(world, 5)

    assert groups(world) == []
