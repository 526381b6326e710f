"""Offsets: who may commit them, what a transaction holds back, and when they are forgotten."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.group.committed_offsets import Committer, TransactionalProducer
from spark_kafka_sink.broker.group.group_coordinator import RETENTION_CHECK_INTERVAL_MS
from spark_kafka_sink.broker.group.group_log import OffsetAndMetadata
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


def commit(world: World, by: Committer = OUTSIDER, **offsets: int) -> ErrorCode | Mapping[TopicPartition, ErrorCode]:
    """`a0=5`: offset 5 of partition 0 of topic a. An error of all of them, or by partition."""
    wanted = {TopicPartition(name[0], int(name[1:])): at(world, offset) for name, offset in offsets.items()}
    try:
        return world.coordinator.commit_offsets(by, wanted, 9)
    except ApiException as error:
        return error.code


def commit_in_transaction(world: World, **offsets: int) -> ErrorCode | Mapping[TopicPartition, ErrorCode]:
    wanted = {TopicPartition(name[0], int(name[1:])): at(world, offset) for name, offset in offsets.items()}
    return world.coordinator.commit_transactional_offsets(OUTSIDER, PRODUCER, wanted)


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


def test_a_commit_is_a_heartbeat() -> None:
    world = World()
    (member,) = world.stable()
    for _ in range(5):
        world.timer.advance(SESSION_MS - 1)
        commit(world, Committer(GROUP, 1, member), a0=5)

    assert world.state() == "Stable"


def test_what_cannot_be_stored_is_not_committed() -> None:
    world = World()
    world.log.refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert commit(world, a0=5) is ErrorCode.NOT_COORDINATOR
    assert committed(world) == {}
    assert groups(world) == []


# Transactions


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


# Deleting


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
