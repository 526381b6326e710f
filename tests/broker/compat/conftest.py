"""One embedded broker with files for all tests of other people's clients, and topics and groups of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Protocol

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker

_numbers = count()


def pytest_configure(config: pytest.Config) -> None:
    # A client of kafka-python that is closed while it connects leaves its socket to the garbage collector. Our client and broker
    # make sockets of protocol 0, so theirs are still watched.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket\.socket [^>]*\bproto=6,:ResourceWarning")


class NewTopic(Protocol):
    def __call__(self, partitions: int = 1, **configs: str) -> str: ...


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Tests share it: they make topics and groups of their own."""
    with EmbeddedBroker(config=BrokerConfig(data_dir=tmp_path_factory.mktemp("compat"))) as running:
        yield running


@pytest.fixture
def servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    """Nobody else's: for a group or a transactional id."""
    return f"name-{next(_numbers)}"


@pytest.fixture
def new_topic(broker: EmbeddedBroker) -> NewTopic:
    """`new_topic(3, cleanup_policy="compact")`: its name, which nobody else has."""

    def create(partitions: int = 1, **configs: str) -> str:
        texts = {name.replace("_", "."): value for name, value in configs.items()}
        return broker.create_topic(f"topic-{next(_numbers)}", partitions, configs=texts)

    return create


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Clients are closed when the test is over, whatever came of it."""
    with ExitStack() as closing:
        yield closing
