"""TLS to a broker behind a proxy: from end to end, begun after the proxy's answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.options.security_config import security_config
from spark_kafka_sink.security.channel_opener import ChannelOpener
from tests.network.small_proxy import SmallProxy
from tests.security.certificates import Certificates, Identity, server_context


@contextmanager
def echo(identity: Identity, folder: Path) -> Iterator[int]:
    """Runs a TLS server that sends back the frame that it gets. Yields its port."""
    context = server_context(identity, folder)

    def serve() -> None:
        try:
            client, _ = listener.accept()
            with context.wrap_socket(client, server_side=True) as far:
                far.sendall(far.recv(1000))
                far.recv(1)
        except OSError:  # the client refused the certificate, or nobody came
            pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@pytest.fixture(params=["socks5", "socks5h", "http"])
def proxy(request: pytest.FixtureRequest) -> Iterator[SmallProxy]:
    with closing(SmallProxy(request.param)) as proxy:
        yield proxy


def answer_of(proxy: SmallProxy, authority: str, port: int) -> bytes:
    """Returns what the server behind the proxy answers. Raises the connection's error."""
    url = f"{proxy.scheme}://{proxy.address[0]}:{proxy.address[1]}"
    opener = ChannelOpener(
        security_config({"security.protocol": "SSL", "ssl.truststore.certificates": authority, "proxy.url": url})
    )
    with closing(Selector(max_frame_size=1000)) as selector:
        (address,) = opener.resolve("localhost", port)
        selector.register(1, opener.open(address, host="localhost", port=port, send_buffer=-1, receive_buffer=-1))
        for _ in range(500):
            result = selector.poll(20)
            for lost in result.disconnected:
                raise lost.error
            if result.connected:
                selector.send(1, [b"abc"])
            for _, frame in result.received:
                return bytes(frame)
    raise AssertionError("nothing came in 10 s")


def test_tls_begins_after_the_proxys_answer(proxy: SmallProxy, certificates: Certificates, tmp_path: Path) -> None:
    with echo(certificates.server, tmp_path) as port:
        assert answer_of(proxy, certificates.authority.chain_pem, port) == b"abc"


def test_the_certificate_is_checked_for_the_brokers_name(proxy: SmallProxy, certificates: Certificates, tmp_path: Path) -> None:
    with echo(certificates.elsewhere, tmp_path) as port, pytest.raises(AuthenticationError) as error:
        answer_of(proxy, certificates.authority.chain_pem, port)
    assert error.value.facts["broker"] == f"localhost:{port}"
    assert "localhost" in error.value.message
