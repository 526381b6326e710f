"""SocketServer: it has its port before it serves, listens on loopback, serves many, and stops whole."""

from __future__ import annotations

import socket

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.socket_server import SocketServer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.broker.network.servers import Server


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no socket here takes IPv6 and IPv4")
def test_an_ipv4_client_of_an_ipv6_listener_is_known_by_its_ipv4_address() -> None:
    hosts: list[str] = []

    def answer(_: BrokerServices, request: Request) -> MetadataResponse:
        hosts.append(request.session.client_host)
        return MetadataResponse()

    with Server({ApiKey.METADATA: answer}, listeners=[Listener(host="::")]) as server:
        server.client().ask(ApiKey.METADATA, 9, MetadataRequest(()))
    assert hosts == ["127.0.0.1"]


def test_a_port_that_is_taken_is_an_error_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listeners = [Listener(), Listener("OTHER", port=other.getsockname()[1])]
        with pytest.raises(OSError, match="in use"):
            SocketServer(BrokerConfig(), served={}, listeners=listeners)


def test_a_frame_that_is_too_large_ends_the_stream_as_a_java_broker_does() -> None:
    """A reset, which the system sends for unread bytes, would hide from a client with TLS that the port has none."""
    tls_hello = bytes.fromhex("16030102000100") + bytes(500)
    with Server() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as stranger:
        stranger.sendall(tls_hello)
        assert stranger.recv(1) == b""
