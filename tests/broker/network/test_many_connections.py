"""Many connections on three Processors: the idle ones cost little, and none of the busy ones starves."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.network.client import Client, api_versions_frame
from tests.broker.network.servers import eventually
from tests.broker.unharmed import MEGABYTE, memory_stays

IDLE, BUSY, ROUNDS = 300, 50, 20
"""Fewer idle ones than the benchmark has, because both ends of each are files of this process."""


def test_idle_connections_cost_little_and_busy_ones_get_their_share() -> None:
    config = BrokerConfig(num_network_threads=3)
    with EmbeddedBroker(config=config) as broker, memory_stays(50 * MEGABYTE), ExitStack() as closing:
        server = broker.server(1)
        idle = [closing.enter_context(Client(server.port)) for _ in range(IDLE)]
        busy = [closing.enter_context(Client(server.port)) for _ in range(BUSY)]
        eventually(lambda: (snapshot := server.snapshot()) is not None and snapshot.connections == IDLE + BUSY)
        # Each has as much as it can have to ask, all at once: who is served how often is the broker's doing alone.
        for client in busy:
            client.send(api_versions_frame() * ROUNDS * 10)
        for _ in range(ROUNDS):
            busy[0].receive()
        answered = [answers(client) for client in busy[1:]]
        assert idle[0].api_versions().error_code == 0

    assert min(answered) >= 0.25 * statistics.median(answered)


def answers(client: Client) -> float:
    """How many have come so far, nearly: the bytes that wait here for the length of one."""
    client.socket.setblocking(False)
    try:
        waiting = len(client.socket.recv(1 << 20, 2))  # MSG_PEEK
    except BlockingIOError:
        waiting = 0
    client.socket.setblocking(True)
    return float(waiting)
