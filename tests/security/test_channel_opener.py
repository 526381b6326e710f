"""ChannelOpener: the channel that the options ask for, and what it costs where TLS is not asked for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.network.channel import Address, PlainChannel, resolve
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.options.security_config import security_config
from spark_kafka_sink.security.channel_opener import ChannelOpener
from tests.network.ends import Clock, framed
from tests.security.certificates import Certificates, server_context


def opener(**settings: str) -> ChannelOpener:
    return ChannelOpener(security_config({name.replace("_", "."): value for name, value in settings.items()}))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


def opened(opener: ChannelOpener, listener: socket.socket) -> PlainChannel | TlsChannel:
    host, port = listener.getsockname()
    (address,) = opener.resolve(host, port)
    assert address == Address(socket.AF_INET, (host, port))
    channel = opener.open(address, host="localhost", port=port, send_buffer=50_000, receive_buffer=50_000)
    assert isinstance(channel, PlainChannel | TlsChannel)
    return channel


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [("PLAINTEXT", PlainChannel), ("SASL_PLAINTEXT", PlainChannel), ("SSL", TlsChannel), ("SASL_SSL", TlsChannel)],
)
def test_the_protocol_chooses_the_channel(listener: socket.socket, protocol: str, kind: type) -> None:
    login = {"sasl_kerberos_service_name": "kafka"} if protocol.startswith("SASL") else {}
    channel = opened(opener(security_protocol=protocol, **login), listener)
    assert type(channel) is kind
    assert channel.peer == "{}:{}".format(*listener.getsockname())
    channel.close()


def test_a_host_is_resolved_as_ever() -> None:
    assert list(opener().resolve("localhost", 9092)) == resolve("localhost", 9092)


def test_options_that_are_wrong_are_told_at_once() -> None:
    with pytest.raises(OptionError, match=r"ssl\.ca\.location: file '/none' does not exist"):
        opener(security_protocol="SSL", ssl_ca_location="/none")
    opener(security_protocol="PLAINTEXT", ssl_ca_location="/none")


def test_plain_connections_import_nothing_of_tls() -> None:
    program = (
        "import sys\n"
        "from spark_kafka_sink.security.channel_opener import ChannelOpener\n"
        "from spark_kafka_sink.options.security_config import PLAINTEXT\n"
        "ChannelOpener(PLAINTEXT)\n"
        "assert not {'ssl', 'cryptography'} & set(sys.modules), 'too much is imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={**os.environ})


def test_a_broker_is_spoken_to(listener: socket.socket, certificates: Certificates, tmp_path: Path) -> None:
    context = server_context(certificates.server, tmp_path)

    def serve() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as far:
            far.sendall(framed(b"hello"))
            far.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    tls = ChannelOpener(
        security_config({"security.protocol": "SSL", "ssl.truststore.certificates": certificates.authority.chain_pem})
    )
    assert greeting(opened(tls, listener)) == b"hello"
    server.join(10)


def greeting(channel: PlainChannel | TlsChannel) -> bytes:
    """Returns the first frame that comes over a channel, which is closed then."""
    selector = Selector(max_frame_size=1_000, clock=Clock())
    try:
        selector.register(1, channel)
        for _ in range(500):
            result = selector.poll(20)
            for lost in result.disconnected:
                raise lost.error
            for _, frame in result.received:
                return bytes(frame)
        raise AssertionError("nothing came in time")
    finally:
        selector.close()


def test_a_forked_process_shakes_hands_with_the_context_that_it_has_from_its_parent(
    listener: socket.socket, certificates: Certificates, tmp_path: Path
) -> None:
    context = server_context(certificates.server, tmp_path)
    options = {"security.protocol": "SSL", "ssl.truststore.certificates": certificates.authority.chain_pem}
    tls = ChannelOpener(security_config(options))

    def serve() -> None:
        for _ in range(3):
            with context.wrap_socket(listener.accept()[0], server_side=True) as far:
                far.sendall(framed(b"hello"))
                far.recv(1)

    def connect() -> None:
        assert greeting(opened(tls, listener)) == b"hello"

    # Forked before there is a thread to be copied; the listener's queue holds the connections until it serves.
    server = threading.Thread(target=serve)
    child = os.fork()
    if not child:
        status = 1
        try:
            connect()
            connect()
            status = 0
        finally:
            os._exit(status)
    server.start()
    connect()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    server.join(10)


def test_a_refused_certificate_names_the_broker_and_the_file(
    listener: socket.socket, certificates: Certificates, tmp_path: Path
) -> None:
    context = server_context(certificates.of_others, tmp_path)
    trusted = tmp_path / "ca.pem"
    trusted.write_text(certificates.authority.chain_pem)

    def serve() -> None:
        with pytest.raises(OSError):
            context.wrap_socket(listener.accept()[0], server_side=True)

    server = threading.Thread(target=serve)
    server.start()
    with pytest.raises(AuthenticationError) as refused:
        greeting(opened(opener(security_protocol="SSL", ssl_truststore_location=str(trusted)), listener))
    server.join(10)
    assert refused.value.facts == {"broker": f"localhost:{listener.getsockname()[1]}"}
    assert f"it is not among the certificates in {trusted}" in refused.value.message
