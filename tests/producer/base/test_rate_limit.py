"""When records may pass under a rate limit. Time is virtual: it passes only while somebody waits."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.base.rate_limit import RateLimit, TokenBucket


class Limited:
    """A rate limit with its own time, and when how much has passed."""

    def __init__(self, **limits: int) -> None:
        self.now = 100.0
        self.waited_ns = 0
        self.checks = 0
        self.passed: list[tuple[float, int]] = []
        options = {f"max.{what}.per.second": limit for what, limit in limits.items()}
        config = producer_config({"bootstrap.servers": "localhost:9092", **options})
        self.limit = RateLimit(config, on_wait=self._waited, clock=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 1
        self.now += seconds

    def _waited(self, waited_ns: int) -> None:
        self.waited_ns += waited_ns

    def check(self) -> None:
        self.checks += 1

    def append(self, records: int, size: int = 100) -> int:
        waited_ms = self.limit.wait("t", records, size, self.check)
        self.passed.append((self.now, records))
        return waited_ms

    def passed_in(self, begin: float, end: float) -> int:
        return sum(records for when, records in self.passed if begin <= when < end)


def test_the_rate_is_kept_from_the_first_second_on() -> None:
    limited = Limited(records=1000)
    begun = limited.now
    for _ in range(40):
        limited.append(limited.limit.max_records)
    assert limited.limit.max_records == 250
    assert [limited.passed_in(begun + second, begun + second + 1) for second in range(10)] == [1000] * 10


def test_an_idle_producer_saves_up_one_second_and_no_more() -> None:
    limited = Limited(records=1000)
    limited.append(1)
    limited.now += 3600
    begun = limited.now
    for _ in range(40):
        limited.append(limited.limit.max_records)
    assert limited.passed_in(begun, begun + 0.01) == 1000
    assert limited.passed_in(begun, begun + 9) <= 1000 + 9 * 1000


def test_a_record_larger_than_a_seconds_worth_passes_and_the_next_one_waits_for_it() -> None:
    limited = Limited(bytes=100)
    assert limited.append(1, size=1000) == 0
    assert limited.append(1, size=1) == 10_000
    assert limited.checks >= 10


def test_of_two_limits_the_slower_one_counts() -> None:
    limited = Limited(records=1000, bytes=1000)
    limited.append(10, size=2000)
    assert limited.append(3000, size=10) == 2000
    assert limited.append(1, size=10) == 3000 - 750  # what the records had saved up while the bytes were waited for


def test_what_was_waited_is_counted() -> None:
    limited = Limited(records=10)
    waited_ms = sum(limited.append(2) for _ in range(6))
    assert (waited_ms, limited.waited_ns) == (1000, 1_000_000_000)


def test_a_wait_ends_with_the_error_of_the_check_and_takes_nothing() -> None:
    limited = Limited(records=10)
    limited.append(20)

    def closed() -> None:
        raise RuntimeError("closed")

    with pytest.raises(RuntimeError, match="closed"):
        limited.limit.wait("t", 1000, 0, closed)
    assert limited.append(1) == 2000


def test_records_that_cannot_wait_are_paid_for_by_those_behind_them() -> None:
    limited = Limited(records=10)
    limited.limit.take(20, 0)
    assert limited.append(1) == 2000


def test_a_wait_of_a_minute_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    limited = Limited(bytes=10)
    limited.append(1, size=590)
    limited.append(1, size=2000)
    assert caplog.messages == []
    limited.append(1, size=2000)
    limited.append(1, size=1)
    assert caplog.messages == [
        "topic t: max.bytes.per.second=10 has held an append back for 60 s, and does so for another 140 s; raise the limit if"
        " that is too slow (further waits of this producer are not logged)"
    ]


@pytest.mark.fault("rate", "a rate limit")
@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 500), st.floats(0, 10)), max_size=50))
def test_in_no_time_passes_more_than_a_second_and_that_time_are_worth_but_for_the_last_amount(
    per_second: int, amounts: list[tuple[int, float]]
) -> None:
    """The last amount passes as soon as those before it are paid for, however large it is."""
    bucket, now = TokenBucket(per_second, 0.0), 0.0
    passed: list[tuple[float, int]] = []
    for amount, pause_s in amounts:
        now += pause_s
        now = bucket.passes_at(now)
        bucket.take(amount, now)
        passed.append((now, amount))
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            seconds = passed[last][0] - passed[first][0]
            before_the_last = sum(amount for _, amount in passed[first:last])
            assert before_the_last <= per_second * (seconds + 1) + 1e-6
