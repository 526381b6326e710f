"""Cluster: a snapshot that answers from what was told; and which of two answers about a topic is believed.

Of two answers about a leader the one with the newer epoch stays, in whatever order they come. A topic id that is gone is not
believed again, and a topic was made again only when that is certain.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from spark_kafka_sink.client.cluster import CONFIRMED_AFTER_MS, Cluster, Node, TopicIds, TopicMetadata, merge_partitions
from spark_kafka_sink.protocol.apis.metadata import MetadataResponsePartition
from tests.every import every

ID = uuid.UUID(int=7)
NODES = {1: Node(1, "one", 9092, "a"), 2: Node(2, "two", 9093)}
CLUSTER = Cluster(NODES, {"orders": TopicMetadata(ID, 0, (2, -1, 1, 9), (5, 6, -1, 8)), "broken": TopicMetadata(None, 3)}, "c")


def test_available_partitions_have_a_leader() -> None:
    available = CLUSTER.available_partitions("orders")
    assert (available.tolist(), available.dtype.name) == ([0, 2], "int32")
    assert CLUSTER.available_partitions("orders") is available
    with pytest.raises(ValueError, match="read-only"):
        available[0] = 1


@pytest.mark.parametrize("topic", ["broken", "unknown"])
def test_a_topic_without_partitions_has_no_count(topic: str) -> None:
    assert CLUSTER.partition_count(topic) is None
    assert CLUSTER.partitions(topic).tolist() == []
    assert CLUSTER.available_partitions(topic).tolist() == []
    assert CLUSTER.leader(topic, 0) is None
    assert CLUSTER.leader_epoch(topic, 0) is None


def test_a_snapshot_does_not_follow_what_it_was_made_of() -> None:
    nodes, topics = dict(NODES), {"orders": TopicMetadata(ID, 0, (1,), (0,))}
    cluster = Cluster(nodes, topics)
    nodes.clear()
    topics.clear()
    assert cluster.leader("orders", 0) == 1
    with pytest.raises(TypeError):
        cluster.nodes[3] = Node(3, "x", 1)  # type: ignore[index]


# Leader epochs

OTHER_ID = uuid.UUID(int=2)


def answers(*leaders_and_epochs: tuple[int, int]) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(error_code=0, partition_index=p, leader_id=leader, leader_epoch=epoch)
        for p, (leader, epoch) in enumerate(leaders_and_epochs)
    ]


def merge(
    new: Sequence[MetadataResponsePartition], seen: TopicMetadata | None, topic_id: uuid.UUID | None = ID, reliable: bool = True
) -> list[tuple[int, int]]:
    merged = merge_partitions(new, topic_id, seen, reliable_epochs=reliable)
    assert (merged.topic_id, merged.error) == (topic_id, 0)
    return list(zip(merged.leaders, merged.epochs, strict=True))


def known(*leaders_and_epochs: tuple[int, int], topic_id: uuid.UUID | None = ID) -> TopicMetadata:
    return TopicMetadata(topic_id, 0, tuple(x for x, _ in leaders_and_epochs), tuple(y for _, y in leaders_and_epochs))


def test_a_newer_epoch_wins_for_its_partition_alone() -> None:
    assert merge(answers((3, 6), (3, 4)), known((1, 5), (2, 5))) == [(3, 6), (2, 5)]


def test_the_same_epoch_takes_the_new_answer() -> None:
    assert merge(answers((-1, 5)), known((1, 5))) == [(-1, 5)]


@pytest.mark.parametrize(("topic_id", "seen_id"), [(OTHER_ID, ID), (ID, None)])
def test_epochs_of_another_topic_id_do_not_count(topic_id: uuid.UUID, seen_id: uuid.UUID | None) -> None:
    assert merge(answers((3, 0)), known((1, 5), (1, 5), topic_id=seen_id), topic_id) == [(3, 0)]


def test_epochs_count_where_brokers_have_no_topic_ids() -> None:
    assert merge(answers((3, 0)), known((1, 5), topic_id=None), None) == [(1, 5)]


def test_an_answer_without_an_epoch_says_who_leads_but_keeps_the_epoch_seen() -> None:
    assert merge(answers((-1, -1)), known((1, 5))) == [(-1, 5)]


def test_epochs_that_are_not_reliable_are_not_taken() -> None:
    assert merge(answers((3, 9)), None, reliable=False) == [(3, -1)]
    assert merge(answers((3, 2)), known((1, -1)), reliable=False) == [(3, -1)]


def test_partitions_that_were_added_are_there() -> None:
    assert merge(answers((1, 5), (2, 0)), known((1, 5))) == [(1, 5), (2, 0)]


def test_a_topic_does_not_shrink_unless_it_is_another() -> None:
    assert merge(answers((1, 6)), known((1, 5), (2, 5))) == [(1, 6), (2, 5)]
    assert merge(answers((1, 6)), known((1, 5), (2, 5), topic_id=None), None) == [(1, 6)]


def test_partitions_out_of_range_are_left_out() -> None:
    odd = [MetadataResponsePartition(error_code=0, partition_index=p, leader_id=1, leader_epoch=0) for p in (0, 7, -1)]
    assert merge(odd, None) == [(1, 0), (-1, -1), (-1, -1)]


@every(
    "partition, epoch, newer",
    [(0, 6, True), (0, 5, False), (0, 4, False), (1, 9, False), (-1, 9, False)],
)
def test_a_newer_epoch_outdates_what_is_known_of_a_partition(partition: int, epoch: int, newer: bool) -> None:
    assert known((1, 5)).is_outdated_by(partition, epoch) is newer


# Topic ids

OLD, NEW, NEWER = (uuid.UUID(int=number) for number in (1, 2, 3))


def told(*answers: tuple[uuid.UUID | None, str, int]) -> TopicIds:
    """After these answers: an id, who said it, and when in ms."""
    ids = TopicIds()
    for answer in answers:
        ids.take(*answer)
    return ids


def test_the_id_of_a_topic_that_is_gone_is_not_believed_again() -> None:
    ids = TopicIds()
    assert ids.take(OLD, "one", 0)
    assert ids.take(NEW, "one", 1)
    assert not ids.take(OLD, "two", 2)
    assert ids.take(NEW, "one", 3)
    assert ids.take(NEWER, "one", 4)
    assert not ids.take(NEW, "one", 5)


def test_an_answer_without_an_id_changes_nothing() -> None:
    ids = told((OLD, "one", 0), (None, "two", 1))
    assert ids.take(OLD, "one", 2)
    assert not ids.is_made_again(1)


@pytest.mark.parametrize(
    ("later", "brokers", "made_again"),
    [
        pytest.param([(OLD, "two", 10 * CONFIRMED_AFTER_MS)], 1, False, id="always one id"),
        pytest.param([(NEW, "one", 1)], 1, False, id="one answer"),
        pytest.param([(NEW, "one", 1), (NEW, "one", 2)], 1, True, id="the only broker, twice"),
        pytest.param([(NEW, "one", 1), (NEW, "one", 2)], 2, False, id="one of two"),
        pytest.param([(NEW, "one", 1), (NEW, "two", 2)], 2, True, id="both of two"),
        pytest.param([(NEW, "one", 1), (NEW, "one", CONFIRMED_AFTER_MS)], 3, False, id="one of several"),
        pytest.param([(NEW, "one", 1), (NEW, "one", CONFIRMED_AFTER_MS + 1)], 3, True, id="one of several for a while"),
        pytest.param([(NEW, "one", 1), (NEW, "two", 2), (NEWER, "one", 3)], 2, False, id="a further id"),
    ],
)
def test_a_topic_was_made_again_once_that_is_certain(
    later: list[tuple[uuid.UUID, str, int]], brokers: int, made_again: bool
) -> None:
    assert told((OLD, "one", 0), *later).is_made_again(brokers) is made_again


def test_a_broker_that_says_otherwise_begins_it_anew() -> None:
    ids = told((OLD, "one", 0), (NEW, "one", 1), (NEW, "two", 2), (OLD, "three", 3))
    assert not ids.is_made_again(3)
    ids.take(NEW, "one", CONFIRMED_AFTER_MS)
    assert not ids.is_made_again(3)
    ids.take(NEW, "two", CONFIRMED_AFTER_MS + 1)
    assert ids.is_made_again(3)
