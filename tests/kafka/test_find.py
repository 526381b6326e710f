"""Which Kafka is used when."""

from __future__ import annotations

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.find import find_kafka
from tests.kafka.kafka import Kafka


@pytest.mark.kafka
def test_the_named_kafka_is_used_and_left_running(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    with find_kafka() as found:
        assert not isinstance(found, KafkaCluster)
        assert found.metadata().brokers
    assert kafka.metadata().brokers
