"""One Spark Connect server for all tests of this folder, and an embedded broker beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker import EmbeddedBroker
from tests.spark_connect.server import ConnectServer


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as made:
        yield made
