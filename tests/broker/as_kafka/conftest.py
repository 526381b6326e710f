"""The fixture `both`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.as_kafka.pair import Pair
from tests.broker.network.client import Client
from tests.kafka.kafka import Kafka


@pytest.fixture(scope="package")
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def both(kafka: Kafka, embedded: EmbeddedBroker) -> Iterator[Pair]:
    with Client.at(kafka.bootstrap_servers) as first, Client.at(embedded.bootstrap_servers) as second:
        yield Pair(first, second)
