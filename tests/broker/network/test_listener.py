"""As many connections as are allowed, from one address and in all; one too many is refused or waits, as Kafka has it."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.network.listener import ConnectionQuotas, TooManyConnectionsError
from tests.broker.network.client import Client, api_versions_frame
from tests.broker.network.servers import Server
from tests.waiting import wait_until


def test_an_override_is_for_its_address_only_and_may_be_a_name() -> None:
    quotas = ConnectionQuotas(max_connections_per_ip=1, overrides={"localhost": 2, "10.0.0.9": 0})
    assert quotas.inc("127.0.0.1")
    assert quotas.inc("127.0.0.1")
    for address in ("127.0.0.1", "10.0.0.9"):
        with pytest.raises(TooManyConnectionsError):
            quotas.inc(address)
    assert quotas.inc("10.0.0.1")


# On sockets


def test_a_connection_over_its_addresss_limit_is_closed_and_the_others_stay() -> None:
    with Server(max_connections_per_ip=2) as server:
        first, second = server.client(), server.client()
        first.api_versions()
        second.api_versions()
        assert server.client().is_closed_by_broker()
        first.close()
        wait_until(lambda: server.sockets.connection_quotas.count() == 1)
        assert server.client().api_versions().error_code == 0
        assert second.api_versions().error_code == 0


def test_a_connection_over_the_limit_of_all_is_served_when_another_has_ended() -> None:
    with Server(max_connections=1) as server:
        first = server.client()
        first.api_versions()
        second = server.client()
        second.send(api_versions_frame())
        second.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            second.receive()
        second.socket.settimeout(10)
        first.close()
        assert second.receive()


def test_every_way_in_which_a_connection_ends_gives_its_place_back() -> None:
    with Server(num_network_threads=1) as server:
        with Client(server.port) as closed:
            closed.api_versions()
        refused = server.client()
        refused.send(b"GET / HTTP/1.1\r\n\r\n")
        assert refused.is_closed_by_broker()
        unread = server.client()
        unread.send(b"\0\0\0\1x")
        assert unread.is_closed_by_broker()
        wait_until(lambda: server.sockets.connection_quotas.count() == 0)
    assert server.sockets.connection_quotas.count() == 0
