"""The image, partitions of internal topics, elections."""

from __future__ import annotations

import uuid
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.metadata_image import (
    GROUP_METADATA_TOPIC,
    NO_LEADER,
    MetadataImage,
    TopicState,
    elected,
    java_hash,
    new_partition,
    partition_for,
    with_leader,
)
from spark_kafka_sink.broker.cluster.new_topics import placed
from tests.broker.cluster.clusters import broker
from tests.every import every


def topic(name: str, partitions: int = 1) -> TopicState:
    return TopicState(name, uuid.uuid4(), tuple(new_partition(index, (1,), (1,)) for index in range(partitions)))


def test_topics_are_found_by_name_and_id() -> None:
    known = topic("t", 2)
    image = MetadataImage().with_topics(known)

    assert image.topic_of_id(known.topic_id) is known
    assert image.partition("t", 1) is known.partitions[1]
    assert [image.partition(name, index) for name, index in [("t", 2), ("t", -1), ("x", 0)]] == [None, None, None]
    assert image.topic_of_id(uuid.uuid4()) is None


def test_a_changed_image_leaves_the_one_before() -> None:
    before = MetadataImage().with_topics(topic("t"))
    after = before.without_topic("t").with_broker(broker(1))

    assert (list(before.topics), list(before.brokers)) == (["t"], [])
    assert (list(after.topics), list(after.names), list(after.brokers)) == ([], [], [1])


def test_a_topic_that_took_the_name_of_another_is_the_only_one() -> None:
    first, second = topic("t"), topic("t")
    image = MetadataImage().with_topics(first).with_topics(second)

    assert image.topic_of_id(first.topic_id) is None
    assert image.topic_of_id(second.topic_id) is second


def test_coordinators_topics_are_internal() -> None:
    assert topic(GROUP_METADATA_TOPIC).is_internal
    assert not topic("t").is_internal


def test_one_partition_changed() -> None:
    known = topic("t", 3)
    changed = new_partition(1, (2, 3), (3,))

    assert known.with_partition(changed).partitions == (known.partitions[0], changed, known.partitions[2])


# Of `String.hashCode` in a JVM.
@every(
    "text, code",
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("test-group", 627841412),
        ("polygenelubricants", -(2**31)),
        ("GydZG_", -(2**31)),
        ("ÄÖÜ", 195210),
        ("日本語", 25921943),
        ("\U0001f600", 1772899),  # a surrogate pair
        ("\x00", 0),
    ],
)
def test_a_hash_is_javas(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_a_group_is_where_kafka_has_it() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("test-group", 50) == 627841412 % 50


def test_the_one_number_that_has_no_positive_twin_is_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 100))
@settings(deadline=None)
def test_every_key_has_a_partition(key: str, partitions: int) -> None:
    assert 0 <= partition_for(key, partitions) < partitions


# Elections and placement


NODES = st.sets(st.integers(0, 9))


@given(st.integers(1, 7), st.integers(0, 40), st.integers(0, 100), st.data())
@settings(deadline=None)
def test_leaders_are_spread_evenly_and_no_broker_has_a_partition_twice(
    brokers: int, partitions: int, first: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, brokers))
    every = placed(tuple(range(brokers)), partitions, replicas, first=first)
    led = Counter(replicas[0] for replicas in every)

    assert len(every) == partitions
    assert all(len(set(of)) == replicas for of in every)
    assert max(led.values(), default=0) - min((led[node] for node in range(brokers)), default=0) <= 1


def test_more_partitions_go_on_where_the_old_ones_ended() -> None:
    every = placed((1, 2, 3), 5, 2, first=1)

    assert placed((1, 2, 3), 5, 2, first=1, begin=3) == every[3:]


@given(st.lists(st.integers(0, 9), min_size=1, unique=True), st.lists(NODES))
@settings(deadline=None)
def test_a_leader_is_a_replica_that_is_up_keeps_it_while_it_is_and_each_change_is_an_epoch(
    replicas: list[int], ups: list[set[int]]
) -> None:
    partition = new_partition(0, tuple(replicas), tuple(sorted(replicas)))
    for up in ups:
        after = elected(partition, tuple(sorted(up)))

        assert after.isr == tuple(node for node in replicas if node in up)
        assert after.leader in (after.isr or (NO_LEADER,))
        assert after.leader == partition.leader or partition.leader not in up
        assert after.leader_epoch - partition.leader_epoch == (after.leader != partition.leader)
        partition = after


def test_a_leader_that_is_named_again_is_an_epoch_too() -> None:
    partition = new_partition(0, (1, 2), (1, 2))

    assert with_leader(partition, 1).leader_epoch == 1
