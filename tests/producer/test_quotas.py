"""Kafka's own quotas: the producer keeps to them, loses nothing, and shows how long it was paused."""

from __future__ import annotations

import itertools
import os
import time

import pytest

from spark_kafka_sink.errors import DeliveryError, DeliveryTimeoutError
from spark_kafka_sink.producer.producer import Producer
from tests.faults.producing import failing_scope, figure, numbers
from tests.kafka import java
from tests.kafka.fixtures import NewTopic, only_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

QUOTA = 200_000
"""Bytes per second. Kafka's window is ten seconds long, so ten times as much passes at once before it throttles."""
_numbers = itertools.count()

pytestmark = [only_real_kafka, pytest.mark.java]  # embedded brokers have no quotas; confluent-kafka cannot set any


@pytest.fixture
def client_id(kafka: Kafka) -> str:
    """A client of its own, whose quota is QUOTA."""
    name = f"quota-{os.getpid()}-{next(_numbers)}"
    _alter(kafka, name, "--add-config", f"producer_byte_rate={QUOTA}")
    return name


def _alter(kafka: Kafka, client_id: str, *change: str) -> None:
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    arguments = ("--bootstrap-server", kafka.direct_servers, "--alter", *entity, *change)
    java.run("kafka.admin.ConfigCommand", *arguments, timeout_s=60)


def producer_of(kafka: Kafka, client_id: str, **settings: object) -> Producer:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": client_id, **options})


@pytest.mark.whole("16 s of pauses; in faults/test_throttling.py an embedded broker asks for them")
@pytest.mark.fault("rate", "a broker's quota is exceeded (KIP-219)")
def test_the_rate_follows_the_quota_and_everything_arrives_once(kafka: Kafka, new_topic: NewTopic, client_id: str) -> None:
    topic = new_topic(3)
    begun = time.monotonic()
    with producer_of(kafka, client_id, batch_size=50_000, max_request_size=100_000) as producer, producer.scope() as scope:
        scope.append(topic, numbers(range(3000), width=1000))
        scope.flush(60)
        took = time.monotonic() - begun
        report = scope.report()
        longest_ms = figure(producer, "produce-throttle-time-max")
    assert took > 3_000_000 / QUOTA - 10 - 1
    assert report.records == 3000
    assert report.errors == {}
    assert 1000 < report.throttled_ms <= took * 1000 + longest_ms
    assert longest_ms > 100
    stored = [int(record.value or b"0") for record in read_topic(kafka.bootstrap_servers, topic)]
    assert sorted(stored) == list(range(3000))


@pytest.mark.fault("rate", "a broker's quota is exceeded (KIP-219)")
@pytest.mark.whole("faults/test_throttling.py has the same on an embedded broker that asks for the pause")
def test_records_that_a_quota_lets_expire_fail_with_an_error_that_names_it(
    kafka: Kafka, new_topic: NewTopic, client_id: str
) -> None:
    topic = new_topic()
    settings = {"request_timeout_ms": 3000, "delivery_timeout_ms": 3005, "batch_size": 100_000, "max_request_size": 500_000}
    with producer_of(kafka, client_id, **settings) as producer, failing_scope(producer) as scope:
        with pytest.raises(DeliveryError) as raised:
            for first in range(0, 8000, 1000):
                scope.append(topic, numbers(range(first, first + 1000), width=1000))
            scope.flush(60)
        acked = scope.report().records
    cause = raised.value.__cause__
    assert isinstance(cause, DeliveryTimeoutError)
    assert f"producer_byte_rate or request_percentage of its user or of client.id '{client_id}'" in cause.message
    assert len(list(read_topic(kafka.bootstrap_servers, topic))) >= acked > 0
