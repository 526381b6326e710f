"""Refusals are told at once, and then once a second with their number."""

from __future__ import annotations

from collections import Counter

import pytest

from spark_kafka_sink.producer.sender.produce_requests import RefusalLog


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_first_refusal_is_told_at_once_and_the_next_ones_together_a_second_later(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()
    for now_ms, count in ((0, 3), (1, 5), (999, 7), (1000, 11)):
        refusals.add(1, Counter({"NOT_LEADER_OR_FOLLOWER": count}), now_ms)
    assert lines(caplog) == [
        "broker 1 rejected 3 batches: NOT_LEADER_OR_FOLLOWER",
        "broker 1 rejected 23 batches: NOT_LEADER_OR_FOLLOWER",
    ]


def test_each_broker_and_each_error_has_its_own_second(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()
    refusals.add(1, Counter({"A": 1, "B": 2}), 0)
    refusals.add(2, Counter({"A": 3}), 0)
    assert lines(caplog) == ["broker 1 rejected 1 batch: A", "broker 1 rejected 2 batches: B", "broker 2 rejected 3 batches: A"]


def test_the_brokers_own_words_make_no_other_error_of_it(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog()
    for number in range(3):
        refusals.add(1, Counter({f"INVALID_RECORD: record {number}": 1}), number * 600)
    assert lines(caplog) == [
        "broker 1 rejected 1 batch: INVALID_RECORD: record 0",
        "broker 1 rejected 2 batches: INVALID_RECORD: record 2",
    ]
