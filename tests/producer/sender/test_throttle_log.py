"""Pauses of brokers: how long they are together, and when the log and errors tell of them."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.producer.sender.outage_log import OVER_AFTER_MS, THROTTLED_AFTER_MS, THROTTLED_EVERY_MS, ThrottleLog


def made() -> ThrottleLog:
    return ThrottleLog("a-client", lambda node: f"broker {node} (kafka-{node}:9092)")


def test_a_pause_that_several_responses_ask_for_counts_once() -> None:
    throttles = made()
    assert throttles.answered(1, 1000, 0) == 1000
    assert throttles.answered(1, 900, 100) == 0
    assert throttles.answered(1, 1000, 200) == 200
    assert throttles.answered(1, 500, 5000) == 500


def test_each_broker_has_its_own_pauses() -> None:
    throttles = made()
    assert [throttles.answered(node, 1000, 0) for node in (1, 2)] == [1000, 1000]


def test_short_pauses_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    throttles = made()
    throttles.answered(1, THROTTLED_AFTER_MS - 1, 0)
    assert caplog.messages == []


def test_a_long_pause_is_told_with_the_broker_the_quota_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    throttles = made()
    throttles.answered(1, 3000, 0)
    throttles.answered(1, 4000, 3000)
    assert caplog.messages == [
        "broker 1 (kafka-1:9092) throttles this client, because it exceeds a quota (producer_byte_rate or request_percentage of"
        " its user or of client.id 'a-client'): in the last 3 s it asked for pauses of 7.0 s, of which 4.0 s are left; raise the"
        " quota, or set max.bytes.per.second to less than the quota"
    ]


def test_a_broker_that_throttles_all_the_time_is_told_of_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    throttles = made()
    for now_ms in range(0, 2 * THROTTLED_EVERY_MS + THROTTLED_AFTER_MS, 1000):
        throttles.answered(1, 1000, now_ms)
    assert len(caplog.messages) == 3


def test_an_error_says_why_records_are_late_only_while_a_broker_throttles_or_has_just_done_so() -> None:
    throttles = made()
    assert throttles.reason(1, 0) == ""
    throttles.answered(1, 1000, 0)
    assert "asked for pauses of 1.0 s, of which 0.5 s are left" in throttles.reason(1, 500)
    assert "of which 0.0 s are left" in throttles.reason(1, 1000 + OVER_AFTER_MS)
    assert throttles.reason(1, 1001 + OVER_AFTER_MS) == ""
    assert throttles.reason(2, 500) == ""
    throttles.answered(1, 2000, 500_000)
    assert "asked for pauses of 2.0 s" in throttles.reason(1, 500_000)
