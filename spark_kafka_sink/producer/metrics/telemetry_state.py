"""The rules of the metrics push (KIP-714): when a client subscribes, when it pushes, and what an error means. Pure."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS
from spark_kafka_sink.protocol.apis.telemetry import GetTelemetrySubscriptionsResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID
from spark_kafka_sink.records.compression import Codec

DEFAULT_INTERVAL_MS: Final = 300_000
"""Java's ClientTelemetryReporter.DEFAULT_PUSH_INTERVAL_MS."""

MIN_INTERVAL_MS: Final = 100
"""The shortest interval that brokers accept for a subscription (ClientMetricsConfigs.MIN_INTERVAL_MS)."""

TERMINATING_MS: Final = 1_000
"""How long the last push may delay the end of a producer. Java waits for it up to request.timeout.ms (30 s)."""

MOST_LOST: Final = 3
"""Lost connections in a row after which a client stops. Each one may have cost requests with records, too."""

_JITTER: Final = (0.5, 1.5)
"""Spreads the first pushes of clients that started together."""


class State(Enum):
    """The states of Java's ClientTelemetryState."""

    SUBSCRIPTION_NEEDED = auto()
    SUBSCRIPTION_IN_PROGRESS = auto()
    PUSH_NEEDED = auto()
    PUSH_IN_PROGRESS = auto()
    TERMINATING_PUSH_NEEDED = auto()
    TERMINATING_PUSH_IN_PROGRESS = auto()
    TERMINATED = auto()


class Reaction(Enum):
    """A reaction to a request without success. All but STOP ask for the subscription again.

    AT_ONCE: now, or after an interval if the last request had no success either. NEXT_INTERVAL: after an interval. LOST: the
    same, with jitter, because every client of a broker that went away is here. LATER: after 5 minutes, maybe at another broker.
    """

    AT_ONCE = auto()
    NEXT_INTERVAL = auto()
    LOST = auto()
    LATER = auto()
    STOP = auto()


REACTIONS: Final[Mapping[int, Reaction]] = {
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: Reaction.AT_ONCE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Reaction.AT_ONCE,
    ErrorCode.TELEMETRY_TOO_LARGE: Reaction.NEXT_INTERVAL,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reaction.NEXT_INTERVAL,
    ErrorCode.INVALID_REQUEST: Reaction.STOP,
    ErrorCode.INVALID_RECORD: Reaction.STOP,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.STOP,
}
"""The reaction to an error code (ClientTelemetryUtils.maybeFetchErrorIntervalMs). Any other code stops the client, as in Java."""


_CODECS: Final[Mapping[int, Codec]] = {codec.value: codec for codec in Codec}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that the cluster wants of this client, and how.

    prefixes: of the names of metrics. codec: the broker's first choice that exists here. max_bytes: of a compressed payload.
    """

    client_instance_id: uuid.UUID
    subscription_id: int
    interval_ms: int
    prefixes: tuple[str, ...]
    codec: Codec
    is_delta: bool
    max_bytes: int

    def wants(self, name: str) -> bool:
        return name.startswith(self.prefixes)


def subscription_of(body: GetTelemetrySubscriptionsResponse) -> Subscription:
    """Returns the subscription in a response. Raises ProtocolError if it has no id for this client."""
    if body.client_instance_id == ZERO_UUID:
        raise ProtocolError("the subscription has no client instance id")
    known = [_CODECS[number] for number in body.accepted_compression_types if number in _CODECS]
    interval_ms = body.push_interval_ms
    return Subscription(
        body.client_instance_id,
        body.subscription_id,
        max(interval_ms, MIN_INTERVAL_MS) if interval_ms > 0 else DEFAULT_INTERVAL_MS,
        ("",) if list(body.requested_metrics) == ["*"] else tuple(body.requested_metrics),
        known[0] if known else Codec.NONE,
        body.delta_temporality,
        body.telemetry_max_bytes if body.telemetry_max_bytes > 0 else FOREVER_MS,
    )


class TelemetryState:
    """The state of one producer's metrics push (Java's ClientTelemetryReporter). The sender's thread owns it; times are in ms.

    due_ms: when something is to be done next: a request, or the end of the wait for the last answer.
    subscription: the last one; it stays while the next one is asked for.
    """

    def __init__(self, rng: random.Random | None = None, *, enabled: bool = True) -> None:
        self.state = State.SUBSCRIPTION_NEEDED if enabled else State.TERMINATED
        self.due_ms = 0 if enabled else FOREVER_MS
        self.subscription: Subscription | None = None
        self._rng = rng or random.Random()
        self._failures = 0  # in a row
        self._losses = 0  # likewise
        self._ends_ms: int | None = None  # set by close()

    def begin(self) -> None:
        self.state = _IN_PROGRESS[self.state]
        self.due_ms = FOREVER_MS if self._ends_ms is None else self._ends_ms

    def subscribed(self, subscription: Subscription, now_ms: int) -> None:
        self.subscription = subscription
        self._failures = self._losses = 0
        if subscription.prefixes:
            self._next(State.PUSH_NEEDED, now_ms + self._with_jitter(subscription.interval_ms), now_ms)
        else:
            self._next(State.SUBSCRIPTION_NEEDED, now_ms + subscription.interval_ms, now_ms)

    def pushed(self, now_ms: int) -> None:
        assert self.subscription is not None
        self._failures = self._losses = 0
        self._next(State.PUSH_NEEDED, now_ms + self.subscription.interval_ms, now_ms)

    def failed(self, reaction: Reaction, now_ms: int) -> bool:
        """Takes the end of a request without success. Returns whether this is the end of all pushes before `close`."""
        interval_ms = DEFAULT_INTERVAL_MS if self.subscription is None else self.subscription.interval_ms
        self._failures += 1
        self._losses = self._losses + 1 if reaction is Reaction.LOST else 0
        if reaction is Reaction.STOP or self._losses == MOST_LOST:
            is_news = self._ends_ms is None
            self.end()
            return is_news
        wait_ms = {
            Reaction.AT_ONCE: 0 if self._failures == 1 else interval_ms,
            Reaction.NEXT_INTERVAL: interval_ms,
            Reaction.LOST: self._with_jitter(interval_ms),
            Reaction.LATER: DEFAULT_INTERVAL_MS,
        }[reaction]
        self._next(State.SUBSCRIPTION_NEEDED, now_ms + wait_ms, now_ms)
        return False

    def close(self, now_ms: int) -> None:
        """Begins the end: a last push follows if there is something to push and its time has not passed.

        A push in flight is waited for first, because it decides from where the last one counts.
        """
        if self._ends_ms is None:
            self._ends_ms = now_ms + TERMINATING_MS
            if self.state is State.PUSH_NEEDED:
                self._next(self.state, now_ms, now_ms)
            elif self.state is State.PUSH_IN_PROGRESS:
                self.due_ms = self._ends_ms
            else:
                self.end()
        elif now_ms >= self._ends_ms:
            self.end()

    def ms_until_end(self, now_ms: int) -> int:
        """Returns how long the last push may still take; 0 if none is waited for."""
        return 0 if self._ends_ms is None or self.state is State.TERMINATED else max(self._ends_ms - now_ms, 0)

    def end(self) -> None:
        self.state = State.TERMINATED
        self.due_ms = FOREVER_MS

    def _next(self, state: State, due_ms: int, now_ms: int) -> None:
        if self._ends_ms is None:
            self.state, self.due_ms = state, due_ms
        elif state is State.PUSH_NEEDED and self.state in (State.PUSH_NEEDED, State.PUSH_IN_PROGRESS) and now_ms < self._ends_ms:
            self.state, self.due_ms = State.TERMINATING_PUSH_NEEDED, now_ms
        else:
            self.end()

    def _with_jitter(self, interval_ms: int) -> int:
        return round(self._rng.uniform(*_JITTER) * interval_ms)


_IN_PROGRESS: Final[Mapping[State, State]] = {
    State.SUBSCRIPTION_NEEDED: State.SUBSCRIPTION_IN_PROGRESS,
    State.PUSH_NEEDED: State.PUSH_IN_PROGRESS,
    State.TERMINATING_PUSH_NEEDED: State.TERMINATING_PUSH_IN_PROGRESS,
}
