"""The image, partitions of internal topics, elections."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.metadata_image import (
    NO_LEADER,
    elected,
    java_hash,
    new_partition,
    partition_for,
    with_leader,
)
from spark_kafka_sink.broker.cluster.new_topics import placed
from tests.every import every


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
    assert partition_for("polygenelubricants", 50) == 0  # its hash has no positive twin


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
