"""Which state may follow which, by Kafka's table, and what a broker reads of subscriptions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.broker.group.classic_group import ClassicGroup, GroupRules, GroupState, subscribed_topics
from tests.every import every

STEPS = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY),
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE),
    *((state, GroupState.DEAD) for state in GroupState),
}


@every("before", GroupState)
@every("after", GroupState)
def test_a_group_takes_the_steps_of_the_table_and_no_other(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("g", lambda: 7, GroupRules())
    group.state = before
    if (before, after) in STEPS:
        group.transition_to(after)
        assert (group.previous_state, group.state, group.state_since_ms) == (before, after, 7)
    else:
        with pytest.raises(RuntimeError, match=f"cannot change from {before.value} to {after.value}"):
            group.transition_to(after)
        assert group.state is before


# Subscriptions


def subscription(*topics: str, version: int = 3) -> bytes:
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + b"user data and more"


def test_the_topics_of_all_members_are_known() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "ü", version=0)]) == frozenset({"a", "b", "ü"})
    assert subscribed_topics([subscription()]) == frozenset()


def test_what_ends_too_early_is_no_subscription() -> None:
    whole = subscription("topic")[:13]
    assert subscribed_topics([whole]) == frozenset({"topic"})
    for size in range(len(whole)):
        assert subscribed_topics([subscription("a"), whole[:size]]) is None


def test_lengths_are_not_believed() -> None:
    assert subscribed_topics([struct.pack(">hih", 0, 1, -1)]) is None
    assert subscribed_topics([struct.pack(">hi", 0, 2**31 - 1)]) is None
    assert subscribed_topics([struct.pack(">hih", 0, 1, 2**15 - 1)]) is None
    assert subscribed_topics([struct.pack(">hih", 0, 1, 1) + b"\xff"]) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_not(data: bytes) -> None:
    topics = subscribed_topics([data])
    assert topics is None or all(isinstance(topic, str) for topic in topics)
