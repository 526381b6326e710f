"""A full request queue stops the reading of sockets, and stops nothing for good."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from spark_kafka_sink.protocol.api import ApiKey
from tests.broker.network.client import Client, framed
from tests.broker.network.held import Blocking, heartbeat_frame
from tests.broker.network.servers import Server
from tests.waiting import wait_until

HANDLERS, QUEUE = 1, 2


@pytest.fixture
def handler() -> Iterator[Blocking]:
    handler = Blocking()
    yield handler
    handler.release.set()


def full(handler: Blocking) -> Server:
    return Server({ApiKey.HEARTBEAT: handler}, num_network_threads=1, num_io_threads=HANDLERS, queued_max_requests=QUEUE)


def fill(server: Server, handler: Blocking) -> list[Client]:
    """One request in the handler, two in the queue, one with the Processor that waits for room; in this order."""
    clients = [server.client() for _ in range(HANDLERS + QUEUE + 1)]
    clients[0].send(heartbeat_frame(0))
    assert handler.entered.acquire(timeout=10)
    for number in range(1, QUEUE + 1):
        clients[number].send(heartbeat_frame(number))
        wait_for_queue(server, number)
    clients[-1].send(heartbeat_frame(QUEUE + 1))
    wait_until(lambda: server.sockets.request_channel.blocked_senders() == 1)
    return clients


def wait_for_queue(server: Server, size: int) -> None:
    wait_until(lambda: server.sockets.request_channel.request_queue_size() == size)


def test_the_queue_takes_no_more_than_it_may_and_sockets_are_not_read_meanwhile(handler: Blocking) -> None:
    with full(handler) as server:
        clients = fill(server, handler)
        assert server.sockets.request_channel.request_queue_size() == QUEUE
        large = server.client()
        assert not takes_all(large, 32 * 1024 * 1024)
        handler.release.set()
        for number, client in enumerate(clients):
            assert client.receive_response(ApiKey.HEARTBEAT, 4)[0] == number


def takes_all(client: Client, size: int) -> bool:
    """Whether a frame of `size` bytes goes out, however long that takes while anything goes."""
    client.socket.setblocking(False)
    left = memoryview(framed(bytes(size)))
    while left:
        if not select.select([], [client.socket], [], 0.5)[1]:
            return False
        left = left[client.socket.send(left) :]
    return True


def test_a_stop_does_not_wait_for_room_in_the_queue(handler: Blocking) -> None:
    with full(handler) as server:
        fill(server, handler)
        assert server.sockets.stop(timeout_s=3600)
        assert not server.pool.stop(timeout_s=0.05)
        handler.release.set()
