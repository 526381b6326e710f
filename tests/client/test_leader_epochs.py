"""Of two things said about a leader the one with the newer epoch stays, in whatever order they come."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.client.cluster import TopicMetadata
from spark_kafka_sink.client.leader_epochs import is_newer, merge_partitions, with_leader
from spark_kafka_sink.protocol.metadata import MetadataResponsePartition

# A busy machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)


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


def test_a_new_topic_is_as_told() -> None:
    assert merge(answers((1, 4), (2, 0)), None) == [(1, 4), (2, 0)]


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


@unhurried
@given(st.permutations(range(6)))
def test_the_newest_epoch_stays_in_any_order_of_answers(epochs: list[int]) -> None:
    seen: TopicMetadata | None = None
    for epoch in epochs:
        seen = merge_partitions(answers((100 + epoch, epoch)), ID, seen, reliable_epochs=True)
    assert seen == known((105, 5))


@pytest.mark.parametrize(
    ("partition", "epoch", "newer"), [(0, 6, True), (0, 5, False), (0, 4, False), (1, 9, False), (-1, 9, False)]
)
def test_is_newer(partition: int, epoch: int, newer: bool) -> None:
    assert is_newer(known((1, 5)), partition, epoch) is newer


def test_with_leader_changes_one_partition() -> None:
    assert with_leader(known((1, 5), (1, 5)), 1, 2, 6) == known((1, 5), (2, 6))
