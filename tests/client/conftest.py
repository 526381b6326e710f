"""An embedded broker for each test: it starts in milliseconds, and what a test does to it ends with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A cluster of two brokers."""
    with EmbeddedBroker(2) as broker:
        yield broker
