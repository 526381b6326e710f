"""One broker for most of these tests: what went wrong in one is put right before the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.faults.asking import connected
from tests.broker.network.client import Client

_numbers = itertools.count()


@pytest.fixture(scope="module")
def _broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(2) as broker:
        yield broker


@pytest.fixture
def broker(_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield _broker
    _broker.faults.clear()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """Two partitions, both led by broker 1."""
    name = broker.create_topic(f"topic-{next(_numbers)}", 2)
    for partition in range(2):
        broker.move_leader(name, partition, 1)
    return name


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    """Of broker 1."""
    with connected(broker) as made:
        yield made


@pytest.fixture
def other_client(broker: EmbeddedBroker) -> Iterator[Client]:
    with connected(broker) as made:
        yield made
