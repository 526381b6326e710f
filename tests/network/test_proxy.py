"""Connections through real SOCKS5 and HTTP CONNECT proxies."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from selectors import EVENT_READ

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import PlainChannel
from spark_kafka_sink.network.proxy import ProxiedChannel, Proxy
from spark_kafka_sink.network.selector import PollResult, Selector
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsRequest
from spark_kafka_sink.protocol.messages import decode_response, encode_request
from tests.kafka.ports import free_ports
from tests.network.proxies import KINDS, Running, running
from tests.network.small_proxy import SmallProxy

USER, PASSWORD = "ann", 'p:"ss'


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_echo, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def _echo(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the test is over
        while True:
            client, _ = listener.accept()
            with client:
                while data := client.recv(65_536):
                    client.sendall(data)


@pytest.fixture(params=KINDS, ids="-".join)
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    kind, speaks = request.param
    with running(kind, speaks, tmp_path) as proxy:
        yield proxy


@pytest.fixture(params=KINDS, ids="-".join)
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """A proxy that asks for a login."""
    # tinyproxy's configuration has no way to write a quote or a colon.
    kind, speaks = request.param
    password = PASSWORD if kind != "tinyproxy" else "secret"
    with running(kind, speaks, tmp_path, USER, password) as proxy:
        yield proxy


def opened(proxy: Proxy, host: str, port: int) -> ProxiedChannel:
    return proxy.proxied(PlainChannel.connect(proxy.resolve(host, port)[0]), host, port)


def shaken(channel: ProxiedChannel) -> ProxiedChannel:
    """Shakes hands as a selector does, and closes the channel if that fails."""
    try:
        assert select.select([], [channel], [], 10)[1]
        assert channel.finish_connect()
        while not channel.handshake():
            waiting = ([channel], []) if channel.interest == EVENT_READ else ([], [channel])
            assert any(select.select(*waiting, [], 10))
    except BaseException:
        channel.close()
        raise
    return channel


def echoed(channel: ProxiedChannel) -> bytes:
    data = b"abc"
    assert channel.send([data]) == len(data)
    found, buffer = b"", bytearray(1000)
    while len(found) < len(data):
        assert select.select([channel], [], [], 10)[0]
        count = channel.recv_into(memoryview(buffer))
        assert count
        found += buffer[:count]
    return found


@pytest.mark.parametrize(("host", "resolves"), [("127.0.0.1", False), ("localhost", False), ("localhost", True)])
def test_bytes_go_through(proxy: Running, echo: int, host: str, resolves: bool) -> None:
    """resolves: the proxy looks up the name; over HTTP it always does."""
    scheme = "socks5h" if resolves and proxy.speaks == "socks5" else ""
    with contextlib.closing(shaken(opened(proxy.as_proxy(scheme), host, echo))) as channel:
        assert echoed(channel) == b"abc"


def test_a_user_and_password_open_a_guarded_proxy(guarded: Running, echo: int, request: pytest.FixtureRequest) -> None:
    proxy = guarded.as_proxy(user=USER, password="secret" if "tinyproxy" in request.node.name else PASSWORD)
    with contextlib.closing(shaken(opened(proxy, "127.0.0.1", echo))) as channel:
        assert echoed(channel) == b"abc"


def test_a_wrong_password_is_an_error_at_once_that_does_not_show_it(guarded: Running, echo: int) -> None:
    proxy = guarded.as_proxy(user=USER, password="a wrong one")
    with pytest.raises(AuthenticationError, match=r"user (or|and) password of proxy\.url") as error:
        shaken(opened(proxy, "127.0.0.1", echo))
    assert error.value.facts["broker"] == f"127.0.0.1:{echo}"
    assert f"the proxy {proxy} " in error.value.message
    assert "a wrong one" not in str(error.value)
    assert USER not in str(error.value)


def test_a_missing_login_says_how_to_write_one(guarded: Running, echo: int) -> None:
    with pytest.raises(AuthenticationError, match=r"Write proxy\.url as \w+://user:password@host:port"):
        shaken(opened(guarded.as_proxy(), "127.0.0.1", echo))


def test_a_port_where_nobody_listens_may_be_tried_again(proxy: Running) -> None:
    (port,) = free_ports(1)
    with pytest.raises(OSError, match=r"^the proxy answered.*(connection refused|status 50[02])"):
        shaken(opened(proxy.as_proxy(), "127.0.0.1", port))


@pytest.fixture
def ipv6_echo() -> Iterator[int]:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("there is no IPv6 on the loopback interface")
    with listener:
        thread = threading.Thread(target=_echo, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_brokers_may_have_ipv6_addresses(proxy: Running, ipv6_echo: int) -> None:
    with contextlib.closing(shaken(opened(proxy.as_proxy(), "::1", ipv6_echo))) as channel:
        assert echoed(channel) == b"abc"
        assert channel.peer.startswith(f"[::1]:{ipv6_echo} through the proxy ")


@pytest.mark.parametrize(("scheme", "told"), [("socks5", "127.0.0.1"), ("socks5h", "localhost"), ("http", "localhost")])
def test_who_resolves_a_name_is_the_schemes_to_say(scheme: str, told: str, echo: int) -> None:
    small = SmallProxy(scheme)
    with contextlib.closing(small):
        shaken(opened(Proxy(scheme, *small.address), "localhost", echo)).close()
        assert small.targets == [(told, echo)]


def until(selector: Selector, reached: Callable[[PollResult], bool]) -> PollResult:
    while not reached(result := selector.poll(100)):
        assert not result.disconnected, result.disconnected
    return result


def test_a_request_goes_to_a_broker_behind_the_proxy_and_is_answered(proxy: Running) -> None:
    with EmbeddedBroker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        selector = Selector(max_frame_size=1_000_000)
        with contextlib.closing(selector):
            selector.register(1, opened(proxy.as_proxy(), host, int(port)))
            until(selector, lambda result: bool(result.connected))
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            selector.send(1, encode_request(API_VERSIONS, 3, 7, "c", request))
            ((_, frame),) = until(selector, lambda result: bool(result.received)).received
            correlation_id, body = decode_response(API_VERSIONS, 3, frame)
    assert (correlation_id, body.error_code) == (7, 0)
