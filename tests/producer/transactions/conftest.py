"""Brokers that do wrong when a test says so, with transactions of both versions."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.producer.transactions.transacting import under_id


@pytest.fixture(scope="session")
def _brokers() -> Iterator[dict[int, EmbeddedBroker]]:
    with _broker(0) as version_1, _broker(2) as version_2:
        for broker in (version_1, version_2):  # so that there are coordinators
            with under_id(broker.bootstrap_servers, "first") as producer:
                producer.begin_transaction()
                producer.send("first", b"1").result(30)
                producer.send_offsets_to_transaction({("first", 0): 1}, "first")
                producer.commit_transaction()
        yield {1: version_1, 2: version_2}


def _broker(level: int) -> EmbeddedBroker:
    return EmbeddedBroker(config=BrokerConfig(transaction_version=level, transaction_state_log_num_partitions=2))


@pytest.fixture
def broker(transaction_version: int, _brokers: dict[int, EmbeddedBroker]) -> Iterator[EmbeddedBroker]:
    """One for the whole run for each version; its faults end with the test."""
    made = _brokers[transaction_version]
    yield made
    made.faults.clear()


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has, also for a transactional id."""
    return f"own-{os.getpid()}-{next(_numbers)}"
