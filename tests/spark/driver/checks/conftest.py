"""The broker of the tests of `check`: topics are not created automatically, and one has four partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.spark.driver.check import check


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BrokerConfig(auto_create_topics_enable=False)) as made:
        made.create_topic("events", 4)
        yield made


@pytest.fixture(autouse=True)
def _brokers_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the default of 10 s a connection may take 1 s, and an answer 3 s. Tests of the time name theirs."""
    assert check.__kwdefaults__ is not None
    monkeypatch.setitem(check.__kwdefaults__, "timeout", 100.0)
