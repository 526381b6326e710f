"""Many connections on three Processors: the idle ones cost little, and none of the busy ones starves."""

from __future__ import annotations

import selectors
import statistics
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.network.client import Client, api_versions_frame
from tests.broker.unharmed import MEGABYTE, memory_stays
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

IDLE, BUSY, REQUESTS = 300, 50, 3_000
"""Fewer idle ones than the benchmark has, because both ends of each are files of this process."""


def test_idle_connections_cost_little_and_busy_ones_get_their_share() -> None:
    config = BrokerConfig(num_network_threads=3)
    with EmbeddedBroker(config=config) as broker, memory_stays(50 * MEGABYTE), ExitStack() as closing:
        server = broker.server(1)
        idle = [closing.enter_context(Client(server.port)) for _ in range(IDLE)]
        busy = [closing.enter_context(Client(server.port)) for _ in range(BUSY)]
        wait_until(lambda: (snapshot := server.snapshot()) is not None and snapshot.connections == IDLE + BUSY)
        answered = keep_asking(busy)
        assert idle[0].api_versions().error_code == 0

    assert len(answered) == BUSY
    assert min(answered.values()) >= 0.25 * statistics.median(answered.values())


def keep_asking(busy: Sequence[Client]) -> Counter[int]:
    """How many requests of each client were answered until all had `REQUESTS`, each asking again when it was answered."""
    answered: Counter[int] = Counter()
    frame = api_versions_frame()
    with selectors.DefaultSelector() as selector:
        for number, client in enumerate(busy):
            selector.register(client.socket, selectors.EVENT_READ, number)
            client.send(frame)
        while answered.total() < REQUESTS:
            for key, _ in selector.select(10):
                assert busy[key.data].receive()
                answered[key.data] += 1
                busy[key.data].send(frame)
    return answered
