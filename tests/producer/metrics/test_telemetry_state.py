"""When a producer subscribes and pushes, and what follows an error: Java's ClientTelemetryReporter, by its table."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS
from spark_kafka_sink.producer.metrics.telemetry_state import (
    DEFAULT_INTERVAL_MS,
    MIN_INTERVAL_MS,
    MOST_LOST,
    REACTIONS,
    TERMINATING_MS,
    Reaction,
    State,
    Subscription,
    TelemetryState,
    subscription_of,
)
from spark_kafka_sink.protocol.apis.telemetry import GetTelemetrySubscriptionsResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.compression import Codec
from tests.every import every

ID = uuid.UUID(int=7)
INTERVAL_MS = 10_000


def subscription(*metrics: str, **more: Any) -> Subscription:
    values = {"client_instance_id": ID, "push_interval_ms": INTERVAL_MS, "requested_metrics": metrics or ("*",), **more}
    return subscription_of(GetTelemetrySubscriptionsResponse(**values))


def state_in(wanted: State, **more: Any) -> TelemetryState:
    """A state that is in `wanted` at 0 ms, after a subscription unless it is the first one that is asked for."""
    state = TelemetryState(random.Random(1), **more)
    steps: list[tuple[State, Callable[[], object]]] = [
        (State.SUBSCRIPTION_NEEDED, lambda: None),
        (State.SUBSCRIPTION_IN_PROGRESS, state.begin),
        (State.PUSH_NEEDED, lambda: state.subscribed(subscription(), 0)),
        (State.PUSH_IN_PROGRESS, state.begin),
        (State.PUSH_NEEDED, lambda: state.pushed(0)),
        (State.TERMINATING_PUSH_NEEDED, lambda: state.close(0)),
        (State.TERMINATING_PUSH_IN_PROGRESS, state.begin),
        (State.TERMINATED, lambda: state.pushed(0)),
    ]
    for reached, step in steps:
        step()
        assert state.state is reached
        if reached is wanted:
            return state
    raise AssertionError(wanted)


# The way through the states


def test_a_request_in_flight_is_waited_for() -> None:
    for wanted in (State.SUBSCRIPTION_IN_PROGRESS, State.PUSH_IN_PROGRESS):
        assert state_in(wanted).due_ms == FOREVER_MS


def test_the_first_push_comes_after_half_to_one_and_a_half_intervals() -> None:
    dues = []
    for seed in range(200):
        state = TelemetryState(random.Random(seed))
        state.begin()
        state.subscribed(subscription(), 1_000)
        dues.append(state.due_ms - 1_000)
    assert 0.5 * INTERVAL_MS <= min(dues) < 0.6 * INTERVAL_MS
    assert 1.4 * INTERVAL_MS < max(dues) <= 1.5 * INTERVAL_MS


def test_further_pushes_come_after_an_interval() -> None:
    state = state_in(State.PUSH_IN_PROGRESS)
    state.pushed(5_000)
    assert (state.state, state.due_ms) == (State.PUSH_NEEDED, 5_000 + INTERVAL_MS)


# Errors


@every(
    "code, reaction",
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, Reaction.AT_ONCE),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, Reaction.AT_ONCE),
        (ErrorCode.TELEMETRY_TOO_LARGE, Reaction.NEXT_INTERVAL),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, Reaction.NEXT_INTERVAL),
        (ErrorCode.INVALID_REQUEST, Reaction.STOP),
        (ErrorCode.INVALID_RECORD, Reaction.STOP),
        (ErrorCode.UNSUPPORTED_VERSION, Reaction.STOP),
    ],
)
def test_the_table_of_errors_is_javas(code: ErrorCode, reaction: Reaction) -> None:
    assert REACTIONS[code] is reaction


@pytest.mark.parametrize(
    ("reaction", "least_ms", "most_ms"),
    [
        (Reaction.AT_ONCE, 0, 0),
        (Reaction.NEXT_INTERVAL, INTERVAL_MS, INTERVAL_MS),
        (Reaction.LOST, INTERVAL_MS // 2, INTERVAL_MS * 3 // 2),
        (Reaction.LATER, DEFAULT_INTERVAL_MS, DEFAULT_INTERVAL_MS),
    ],
)
def test_after_a_failed_push_the_subscription_is_asked_for(reaction: Reaction, least_ms: int, most_ms: int) -> None:
    state = state_in(State.PUSH_IN_PROGRESS)
    assert not state.failed(reaction, 5_000)
    assert state.state is State.SUBSCRIPTION_NEEDED
    assert least_ms <= state.due_ms - 5_000 <= most_ms
    assert state.subscription is not None  # its client instance id is kept


def test_before_the_first_subscription_the_interval_is_javas_default() -> None:
    state = state_in(State.SUBSCRIPTION_IN_PROGRESS)
    state.failed(Reaction.NEXT_INTERVAL, 0)
    assert state.due_ms == DEFAULT_INTERVAL_MS


def test_an_error_that_cannot_be_mended_ends_the_pushes() -> None:
    state = state_in(State.PUSH_IN_PROGRESS)
    assert state.failed(Reaction.STOP, 0)
    assert (state.state, state.due_ms) == (State.TERMINATED, FOREVER_MS)


def test_a_broker_that_always_says_at_once_is_not_asked_in_a_loop() -> None:
    state = state_in(State.SUBSCRIPTION_IN_PROGRESS)
    state.failed(Reaction.AT_ONCE, 0)
    assert state.due_ms == 0
    state.begin()
    state.failed(Reaction.AT_ONCE, 0)
    assert state.due_ms == DEFAULT_INTERVAL_MS


def test_connections_that_are_lost_in_a_row_end_the_pushes() -> None:
    state = state_in(State.PUSH_IN_PROGRESS)
    ends = []
    for _ in range(MOST_LOST):
        ends.append(state.failed(Reaction.LOST, 0))
        if not ends[-1]:
            state.begin()
    assert ends == [False] * (MOST_LOST - 1) + [True]


def test_an_answer_between_lost_connections_begins_the_count_again() -> None:
    state = state_in(State.PUSH_IN_PROGRESS)
    for _ in range(3 * MOST_LOST):
        assert not state.failed(Reaction.LOST, 0)
        state.begin()
        state.subscribed(subscription(), 0)
        state.begin()


# The end


def test_the_last_push_is_due_at_once() -> None:
    state = state_in(State.PUSH_NEEDED)
    state.close(3_000)
    assert (state.state, state.due_ms) == (State.TERMINATING_PUSH_NEEDED, 3_000)
    assert state.ms_until_end(3_000) == TERMINATING_MS


@pytest.mark.parametrize("before", [State.SUBSCRIPTION_NEEDED, State.SUBSCRIPTION_IN_PROGRESS])
def test_without_a_subscription_there_is_no_last_push(before: State) -> None:
    state = state_in(before)
    state.close(3_000)
    assert state.state is State.TERMINATED


def test_the_last_push_waits_for_the_one_in_flight() -> None:
    state = state_in(State.PUSH_IN_PROGRESS)
    state.close(3_000)
    assert (state.state, state.due_ms) == (State.PUSH_IN_PROGRESS, 3_000 + TERMINATING_MS)
    state.pushed(3_100)
    assert (state.state, state.due_ms) == (State.TERMINATING_PUSH_NEEDED, 3_100)


def test_after_a_push_in_flight_that_fails_there_is_no_last_one() -> None:
    state = state_in(State.PUSH_IN_PROGRESS)
    state.close(3_000)
    assert not state.failed(Reaction.AT_ONCE, 3_100)
    assert state.state is State.TERMINATED


@pytest.mark.parametrize("before", [State.PUSH_IN_PROGRESS, State.TERMINATING_PUSH_IN_PROGRESS])
def test_the_end_is_not_delayed_by_more_than_a_second(before: State) -> None:
    state = state_in(before)
    state.close(0)
    assert state.due_ms == TERMINATING_MS
    state.close(TERMINATING_MS)
    assert (state.state, state.ms_until_end(TERMINATING_MS)) == (State.TERMINATED, 0)


@pytest.mark.parametrize("reaction", [None, Reaction.AT_ONCE, Reaction.LOST, Reaction.STOP])
def test_any_answer_to_the_last_push_is_the_end_and_no_news(reaction: Reaction | None) -> None:
    state = state_in(State.TERMINATING_PUSH_IN_PROGRESS)
    if reaction is None:
        state.pushed(10)
    else:
        assert not state.failed(reaction, 10)
    assert (state.state, state.due_ms) == (State.TERMINATED, FOREVER_MS)


# Subscriptions


def test_a_star_stands_for_all_metrics_and_anything_else_is_a_prefix() -> None:
    assert subscription("*").wants("org.apache.kafka.producer.x")
    some = subscription("org.apache.kafka.producer.node.", "org.apache.kafka.producer.record")
    assert some.wants("org.apache.kafka.producer.node.request.total")
    assert some.wants("org.apache.kafka.producer.record.send.total")
    assert not some.wants("org.apache.kafka.producer.request.total")
    assert not subscription("*", "other").wants("org.apache.kafka.producer.x")
    assert subscription("").wants("org.apache.kafka.producer.x")  # KIP-714's older notation


def test_the_first_codec_that_exists_here_is_used() -> None:
    assert subscription(accepted_compression_types=(99, 4, 1)).codec is Codec.ZSTD
    assert subscription(accepted_compression_types=(99,)).codec is Codec.NONE
    assert subscription(accepted_compression_types=()).codec is Codec.NONE


@every(
    "said_ms, used_ms",
    [(-1, DEFAULT_INTERVAL_MS), (0, DEFAULT_INTERVAL_MS), (1, MIN_INTERVAL_MS), (100, 100), (500, 500)],
)
def test_an_interval_that_brokers_do_not_accept_is_replaced(said_ms: int, used_ms: int) -> None:
    assert subscription(push_interval_ms=said_ms).interval_ms == used_ms
