"""SocketServer: it has its port before it serves, listens on loopback, serves many, and stops whole."""

from __future__ import annotations

import socket
import threading

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.socket_server import SocketServer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from tests.broker.network.client import Client
from tests.broker.network.servers import Server
from tests.broker.unharmed import no_thread_is_left
from tests.waiting import wait_until


def test_a_free_port_is_known_before_the_server_is_started() -> None:
    with Server() as server:
        port = server.port
        assert port > 0
        assert server.client().api_versions().error_code == 0
        assert server.port == port


def test_by_default_it_listens_on_loopback_only() -> None:
    assert Listener().host == "127.0.0.1"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no socket here takes IPv6 and IPv4")
def test_an_ipv4_client_of_an_ipv6_listener_is_known_by_its_ipv4_address() -> None:
    hosts: list[str] = []

    def answer(_: BrokerServices, request: Request) -> MetadataResponse:
        hosts.append(request.session.client_host)
        return MetadataResponse()

    with Server({ApiKey.METADATA: answer}, listeners=[Listener(host="::")]) as server:
        server.client().ask(ApiKey.METADATA, 9, MetadataRequest(()))
    assert hosts == ["127.0.0.1"]


def test_a_given_port_can_be_connected_to_from_the_start_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    sockets = SocketServer(BrokerConfig(), served={}, listeners=[Listener(port=port)])
    assert sockets.bound_port() == port
    with pytest.raises(ConnectionRefusedError):
        Client(port)
    sockets.start()
    with Client(port):
        wait_until(lambda: sockets.snapshot().connections == 1)
    assert sockets.stop()


def test_a_port_that_is_taken_is_an_error_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listeners = [Listener(), Listener("OTHER", port=other.getsockname()[1])]
        with pytest.raises(OSError, match="in use"):
            SocketServer(BrokerConfig(), served={}, listeners=listeners)


def test_a_port_that_is_taken_before_the_start_is_an_error_and_nothing_runs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    before = threading.active_count()
    sockets = SocketServer(BrokerConfig(), served={}, listeners=[Listener(), Listener("OTHER", port=port)])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            sockets.start()
    assert threading.active_count() == before


def test_every_listener_has_its_own_port_and_processors() -> None:
    with Server(listeners=[Listener("A"), Listener("B")], num_network_threads=2) as server:
        ports = [server.sockets.bound_port(name) for name in ("A", "B")]
        assert len(set(ports)) == 2
        for port in ports:
            with Client(port) as client:
                assert client.api_versions().error_code == 0


def test_ipv6_is_listened_to_where_it_is_given() -> None:
    with Server(listeners=[Listener(host="::1")]) as server, socket.create_connection(("::1", server.port)) as connected:
        wait_until(lambda: server.sockets.snapshot().connections == 1)
        assert connected.getpeername()[1] == server.port


def test_connections_go_to_the_processors_in_turn() -> None:
    with Server(num_network_threads=3) as server:
        for count in range(1, 7):
            server.client().api_versions()
            assert server.sockets.snapshot().connections == count
        assert server.sockets.snapshot().by_processor == (2, 2, 2)


def test_a_stop_closes_connections_and_the_port() -> None:
    with Server() as server:
        client = server.client()
        client.api_versions()
        assert server.sockets.stop()
        assert client.is_closed_by_broker()
        with pytest.raises(ConnectionRefusedError):
            Client(server.port)


def test_a_server_that_was_never_started_can_be_stopped_and_stopped_again() -> None:
    sockets = SocketServer(BrokerConfig(), served={})
    assert sockets.stop()
    assert sockets.stop()


def test_a_stopped_server_leaves_no_thread() -> None:
    with no_thread_is_left(), Server() as server:
        server.client().api_versions()


def test_its_port_can_be_listened_to_again_at_once() -> None:
    with Server() as server:
        port = server.port
        server.client().api_versions()
    with Server(listeners=[Listener(port=port)]) as server:
        assert server.client().api_versions().error_code == 0


def test_a_frame_that_is_too_large_ends_the_stream_as_a_java_broker_does() -> None:
    """A reset, which the system sends for unread bytes, would hide from a client with TLS that the port has none."""
    tls_hello = bytes.fromhex("16030102000100") + bytes(500)
    with Server() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as stranger:
        stranger.sendall(tls_hello)
        assert stranger.recv(1) == b""
