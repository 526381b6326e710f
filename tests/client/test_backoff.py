"""ExponentialBackoff: doubles up to its most, and never twice the same."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.client.backoff import ExponentialBackoff


def test_without_jitter_it_doubles_up_to_the_most() -> None:
    backoff = ExponentialBackoff(100, 1000, jitter=0)
    assert [backoff.backoff_ms(attempts) for attempts in range(6)] == [100, 200, 400, 800, 1000, 1000]


@given(initial=st.integers(0, 10**6), maximum=st.integers(0, 10**6), attempts=st.integers(0, 10**9), seed=st.integers())
def test_jitter_is_a_fifth_at_most_and_nothing_passes_the_most(initial: int, maximum: int, attempts: int, seed: int) -> None:
    plain = ExponentialBackoff(initial, maximum, jitter=0).backoff_ms(attempts)
    jittered = ExponentialBackoff(initial, maximum, rng=random.Random(seed)).backoff_ms(attempts)
    assert int(0.8 * plain) <= jittered <= min(maximum, int(1.2 * plain))


def test_clients_that_failed_together_do_not_come_back_together() -> None:
    backoff = ExponentialBackoff(100, 10_000)
    assert len({backoff.backoff_ms(3) for _ in range(100)}) > 30


def test_where_nothing_grows_there_is_no_jitter_as_in_java() -> None:
    backoff = ExponentialBackoff(1000, 100)
    assert {backoff.backoff_ms(attempts) for attempts in range(20)} == {100}
