"""The broker of the tests of `check`: topics are not created automatically, and one has four partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(auto_create_topics_enable=False)) as made:
        made.create_topic("events", 4)
        yield made
