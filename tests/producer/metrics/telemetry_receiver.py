"""An embedded broker that asks for client metrics, what it received, and producers that push to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.broker import BrokerConfig, ClientMetricsManager, EmbeddedBroker, PushedMetrics
from spark_kafka_sink.producer.metrics import telemetry_state
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from tests.producer.metrics.otlp_witness import Pushed, read
from tests.waiting import DEADLINE_S, HOUR_MS

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
OFTEN_MS, NEVER_MS = 100, HOUR_MS


class Receiver:
    """Keeps what was pushed; a thread of the broker calls it."""

    def __init__(self) -> None:
        self.pushes: list[PushedMetrics] = []
        self._changed = threading.Condition()

    def __call__(self, push: PushedMetrics) -> None:
        with self._changed:
            self.pushes.append(push)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.pushes) >= count, DEADLINE_S), f"{len(self.pushes)} pushes"

    def read(self) -> list[Pushed]:
        return [read(push.data) for push in self.pushes]

    def total(self, name: str, **attributes: str) -> float:
        """The sum of all differences that were pushed."""
        return sum(pushed.value(name, **attributes) for pushed in self.read())


@contextmanager
def receiving(
    interval_ms: int = OFTEN_MS, *, terminating_ms: int = HOUR_MS, **more: Any
) -> Iterator[tuple[EmbeddedBroker, Receiver, ClientMetricsManager]]:
    """terminating_ms: how long a producer waits for its last push; users' producers wait for a second."""
    receiver = Receiver()
    manager = ClientMetricsManager(receiver, interval_ms=interval_ms, **more)
    with (
        patch.object(telemetry_state, "TERMINATING_MS", terminating_ms),
        EmbeddedBroker(config=BrokerConfig(client_metrics=manager)) as broker,
    ):
        yield broker, receiver, manager


def producer_of(broker: EmbeddedBroker, settings: dict[str, object] | None = None, **more: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **(settings or {})}, **more)


def send(producer: Producer, count: int = 1) -> None:
    for future in [producer.send("topic", b"value") for _ in range(count)]:
        future.result(DEADLINE_S)
