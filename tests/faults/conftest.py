"""Brokers that do wrong on purpose, and producers that lose little time over it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.recording_broker import RecordingBroker
from tests.waiting import HOUR_MS

_numbers = itertools.count()


@pytest.fixture
def cluster() -> Iterator[RecordingBroker]:
    """One broker, with a topic `t` of one partition. After the test: no sequence number stood for two different batches."""
    with RecordingBroker() as made:
        made.topic()
        yield made
    check_numbers(made)


@pytest.fixture
def leader() -> Iterator[RecordingBroker]:
    """As `cluster`, for transactions: numbers of rejected records are used again, so they may stand for others."""
    with RecordingBroker() as made:
        made.topic()
        yield made


@pytest.fixture
def cluster2() -> Iterator[RecordingBroker]:
    """Two brokers; broker 1 leads the one partition of `t`."""
    with RecordingBroker(2) as made:
        made.topic()
        yield made
    check_numbers(made)


@pytest.fixture
def topic() -> str:
    """A name that no other test has, for brokers that create topics."""
    return f"faults-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def patient_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Produce requests do not time out, so that a batch on the wire expires before its request, whenever that was sent.

    delivery.timeout.ms may not be less than request.timeout.ms, and a request that is sent at once times out as early.
    """
    send = NetworkClient.send

    def patient(client: NetworkClient, node_id: int, api: Any, *others: Any, **more: Any) -> None:
        send(client, node_id, api, *others, **(more | {"timeout_ms": HOUR_MS} if api.key is ApiKey.PRODUCE else more))

    monkeypatch.setattr(NetworkClient, "send", patient)


def check_numbers(cluster: RecordingBroker) -> None:
    """A part of a batch that was refused may have its numbers: what is refused for its records was never looked at by them."""
    seen: dict[tuple[str, int, int, int, int], tuple[bytes | None, ...]] = {}
    for received in cluster.received:
        if received.batch.producer_id >= 0:
            numbers = (received.topic, received.partition, received.batch.producer_id, *received.numbers)
            before = seen.setdefault(numbers, received.values)
            assert set(received.values) <= set(before), f"{numbers} was used for {received.values} after {before}"
            seen[numbers] = received.values
