"""A TLS handshake belongs to the set-up of a connection: it ends with socket.connection.setup.timeout.ms."""

from __future__ import annotations

import socket

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connections import Connections, PollEvents
from spark_kafka_sink.errors import DisconnectedError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.security_config import security_config
from tests.client.rig import Clock

CLIENT_HELLO = 0x16
SETUP_TIMEOUT_MOST_MS = 12_000  # 10 s and a fifth


def test_a_server_that_never_answers_the_handshake_is_given_up_after_the_setup_timeout() -> None:
    clock = Clock()
    config = ProducerConfig(bootstrap_servers=("unused:1",), security=security_config({"security.protocol": "SSL"}))
    connections = Connections(config, clock)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        try:
            node = Node(1, "127.0.0.1", listener.getsockname()[1], None)
            assert connections.connect(node, clock.now_ms) is None
            silent, _ = listener.accept()
            with silent:
                silent.settimeout(10)
                assert connections.poll(1_000, clock.now_ms)[0] == PollEvents()
                assert silent.recv(65_536)[0] == CLIENT_HELLO  # 1,500 bytes with OpenSSL 3.6
                assert connections.poll(0, clock.now_ms)[0] == PollEvents()
                clock.now_ms += SETUP_TIMEOUT_MOST_MS
                (lost,) = connections.poll(0, clock.now_ms)[0].lost
                assert isinstance(lost.error, DisconnectedError)
                assert "(socket.connection.setup.timeout.ms)" in lost.error.message
                silent.settimeout(10)
                assert silent.recv(1_000) == b""
        finally:
            connections.close()
