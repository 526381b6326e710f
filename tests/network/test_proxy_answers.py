"""What is said to a proxy, byte for byte, and what is made of answers that no good proxy gives."""

from __future__ import annotations

import contextlib
import random
import select
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import Address, PlainChannel
from spark_kafka_sink.network.proxy import MAX_HEADER_BYTES, ProxiedChannel, Proxy, Turn
from tests.every import every
from tests.network.ends import Ends

BROKER = ("b1.example", 9092)
LOGIN = ("ann", "p:ss")
NO_LOGIN = ("", None)
GREETING = bytes.fromhex("050100")
CONNECT_TO_NAME = bytes.fromhex("05010003 0a") + b"b1.example" + bytes.fromhex("2384")
BOUND_TO = {"an IPv4 address": "01 7f000001", "an IPv6 address": "04" + "00" * 16, "a name": "03 03 616263"}
OPEN = bytes.fromhex("050000 01 7f000001 0050")
TUNNEL = b"CONNECT b1.example:9092 HTTP/1.1\r\nHost: b1.example:9092\r\n\r\n"


class FarEnd:
    """A proxy that says what it is told to say."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self._channels: list[ProxiedChannel] = []
        self.port: int = self._listener.getsockname()[1]
        self.socket: socket.socket = socket.socket()

    def channel(
        self, scheme: str, host: str = BROKER[0], port: int = BROKER[1], login: tuple[str, str | None] = NO_LOGIN
    ) -> ProxiedChannel:
        proxy = Proxy(scheme, "127.0.0.1", self.port, *login)
        plain = PlainChannel.connect(Address(socket.AF_INET, self._listener.getsockname()))
        self.socket.close()
        self.socket, _ = self._listener.accept()
        self.socket.settimeout(60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = proxy.proxied(plain, host, port)
        self._channels.append(channel)
        assert select.select([], [channel], [], 5)[1]
        assert channel.finish_connect()
        return channel

    def says(self, channel: ProxiedChannel, answer: bytes) -> bool:
        """Sends an answer, and lets the channel read it. Returns whether the handshake is done."""
        self.socket.sendall(answer)
        assert select.select([channel], [], [], 5)[0]
        return channel.handshake()

    def hears(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            assert more, f"the channel was closed after {found!r}"
            found += more
        return found

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self.socket.close()
        self._listener.close()


@pytest.fixture
def far() -> Iterator[FarEnd]:
    far = FarEnd()
    yield far
    far.close()


# What is said


@every("bound", BOUND_TO)
def test_socks5_is_said_as_rfc_1928_has_it(bound: str) -> None:
    with closing(FarEnd()) as far:
        channel = far.channel("socks5h")
        assert not channel.handshake()
        assert far.hears(3) == GREETING
        assert not far.says(channel, b"\x05\x00")
        assert far.hears(len(CONNECT_TO_NAME)) == CONNECT_TO_NAME
        assert far.says(channel, bytes.fromhex(f"050000 {BOUND_TO[bound]} 0050"))


@every("host, told", [("10.1.2.3", "01 0a010203"), ("2001:db8::5", "04 20010db8000000000000000000000005")])
@every("scheme", ["socks5", "socks5h"])
def test_addresses_are_told_as_addresses(scheme: str, host: str, told: str) -> None:
    with closing(FarEnd()) as far:
        channel = far.channel(scheme, host, 80)
        channel.handshake()
        far.hears(3)
        far.says(channel, b"\x05\x00")
        expected = bytes.fromhex(f"050100 {told} 0050")
        assert far.hears(len(expected)) == expected


def test_a_login_is_said_as_rfc_1929_has_it(far: FarEnd) -> None:
    channel = far.channel("socks5h", login=LOGIN)
    channel.handshake()
    assert far.hears(4) == bytes.fromhex("05020002")
    assert not far.says(channel, b"\x05\x02")
    assert far.hears(10) == b"\x01\x03ann\x04p:ss"
    assert not far.says(channel, b"\x01\x00")
    assert far.hears(len(CONNECT_TO_NAME)) == CONNECT_TO_NAME
    assert far.says(channel, OPEN)


def test_what_is_said_to_a_proxy_does_not_show_in_a_repr() -> None:
    assert "hunter2" not in repr(Turn(b"\x01\x03ann\x07hunter2", 2))


def test_a_login_is_not_said_where_none_is_wanted(far: FarEnd) -> None:
    channel = far.channel("socks5h", login=LOGIN)
    channel.handshake()
    far.hears(4)
    assert not far.says(channel, b"\x05\x00")
    assert far.hears(len(CONNECT_TO_NAME)) == CONNECT_TO_NAME


def test_http_is_asked_for_a_tunnel(far: FarEnd) -> None:
    channel = far.channel("http")
    assert not channel.handshake()
    assert far.hears(len(TUNNEL)) == TUNNEL
    assert far.says(channel, b"HTTP/1.1 200 OK\r\n\r\n")


def test_http_is_told_the_login_as_basic(far: FarEnd) -> None:
    channel = far.channel("http", "::1", 9092, login=LOGIN)
    channel.handshake()
    expected = b"CONNECT [::1]:9092 HTTP/1.1\r\nHost: [::1]:9092\r\nProxy-Authorization: Basic YW5uOnA6c3M=\r\n\r\n"
    assert far.hears(len(expected)) == expected


@every("host", ["a b", "a\r\nX: y", "", "a" * 256, "a/b", "a@b", "b:1", "10.0.0.1%\r\nX: y"])
@every("scheme", ["socks5h", "http"])
def test_a_host_that_is_no_name_is_not_told_to_the_proxy(scheme: str, host: str) -> None:
    with closing(FarEnd()) as far:
        with pytest.raises(OSError, match="is not a valid host name"):
            far.channel(scheme, host)
        assert far.socket.recv(1) == b""  # and the connection is closed


@every("port", [-1, 65_536])
@every("scheme", ["socks5", "socks5h", "http"])
def test_a_port_that_is_none_is_not_told_to_the_proxy(scheme: str, port: int) -> None:
    with closing(FarEnd()) as far, pytest.raises(OSError, match="is not a valid port"):
        far.channel(scheme, "127.0.0.1", port)


@every("zone", ["eth0", "\r\nX: y\r\n"])
def test_the_zone_of_an_address_is_not_told_to_the_proxy(zone: str) -> None:
    with closing(FarEnd()) as far:
        channel = far.channel("http", f"fe80::1%{zone}", 80)
        assert not channel.handshake()
        expected = b"CONNECT [fe80::1]:80 HTTP/1.1\r\nHost: [fe80::1]:80\r\n\r\n"
        assert far.hears(len(expected)) == expected


# What comes after the answer, and answers in pieces


@every(
    "scheme, answers",
    [
        ("socks5h", [b"\x05\x00", OPEN]),
        ("http", [b"HTTP/1.0 200 OK\nVia: x\n\n"]),
        ("http", [b"HTTP/1.1 204 \r\nVia: x\r\n\r\n"]),
    ],
)
def test_bytes_after_the_answer_are_the_brokers(scheme: str, answers: list[bytes]) -> None:
    with closing(FarEnd()) as far:
        channel = far.channel(scheme)
        channel.handshake()
        assert far.says(channel, b"".join(answers) + b"broker")
        buffer = bytearray(10)
        assert channel.recv_into(memoryview(buffer)) == 6
        assert buffer[:6] == b"broker"


@every("scheme, answer", [("socks5h", b"\x05\x00" + OPEN), ("http", b"HTTP/1.1 200 OK\r\nVia: x\r\nA: b\r\n\r\n")])
def test_an_answer_may_come_byte_by_byte(scheme: str, answer: bytes) -> None:
    with closing(FarEnd()) as far:
        channel = far.channel(scheme)
        channel.handshake()
        for place in range(len(answer) - 1):
            assert not far.says(channel, answer[place : place + 1])
        assert far.says(channel, answer[-1:])


@every("scheme", ["socks5h", "http"])
def test_the_socket_is_handed_on_after_the_handshake(scheme: str) -> None:
    with closing(FarEnd()) as far:
        channel = far.channel(scheme)
        channel.handshake()
        assert far.says(channel, b"\x05\x00" + OPEN + b"hi" if scheme == "socks5h" else b"HTTP/1.1 200 \r\n\r\nhi")
        assert channel.detach().recv(10) == b"hi"


# Refusals


def error_of(far: FarEnd, scheme: str, answer: bytes, login: tuple[str, str | None] = NO_LOGIN) -> Exception:
    channel = far.channel(scheme, login=login)
    channel.handshake()
    with pytest.raises((OSError, AuthenticationError)) as error:
        far.says(channel, answer)
    return error.value


@every(
    "code, text, for_good",
    [
        (1, "general failure", False),
        (2, "the connection is not allowed by its rules", True),
        (3, "network unreachable", False),
        (4, "host unreachable", False),
        (5, "connection refused", False),
        (6, "the time to live expired", False),
        (7, "it does not support the command CONNECT", True),
        (8, "it does not support this type of address", True),
        (99, "an unknown failure", False),
    ],
)
def test_replies_of_socks_are_told_in_words(code: int, text: str, for_good: bool) -> None:
    with closing(FarEnd()) as far:
        error = error_of(far, "socks5h", b"\x05\x00\x05" + bytes([code]))
        assert f"answered: {text} (SOCKS reply {code})" in str(error)
        assert isinstance(error, AuthenticationError) is for_good


@every(
    "answer, text",
    [
        (b"HT", "does not speak SOCKS5: it answered b'HT'"),
        (b"\x04\x5b", "does not speak SOCKS5"),
        (b"\x05\x01", "chose login method 1, which was not offered"),
        (b"\x05\x02", "chose login method 2, which was not offered"),
        (b"\x05\xff", "accepts no connection without a login. Write proxy.url as socks5h://user:password@host:port"),
        (b"\x05\x00\x00\x00", "does not speak SOCKS5"),
        (b"\x05\x00\x05\x00\x00\x07", "answered an address of the unknown type 7"),
    ],
)
def test_wrong_answers_of_socks_name_proxy_and_broker(answer: bytes, text: str) -> None:
    with closing(FarEnd()) as far:
        error = error_of(far, "socks5h", answer)
        assert isinstance(error, AuthenticationError)
        assert error.message.startswith(f"could not connect to b1.example:9092: the proxy socks5h://127.0.0.1:{far.port} ")
        assert text in error.message
        assert error.facts["broker"] == "b1.example:9092"


@every(
    "answer, text",
    [
        (b"\x05\xff", "accepts no login, and no login by user and password either"),
        (b"\x05\x02\x01\x01", "refused the user or password of proxy.url (status 1)"),
    ],
)
def test_a_login_that_socks_refuses_is_an_error_at_once(answer: bytes, text: str) -> None:
    with closing(FarEnd()) as far:
        error = error_of(far, "socks5h", answer, login=LOGIN)
        assert isinstance(error, AuthenticationError)
        assert text in error.message
        assert "p:ss" not in error.message


@every(
    "answer, text, for_good",
    [
        ("407 No\r\nProxy-Authenticate: Basic realm=x", "Authentication Required. Write proxy.url as http://user:", True),
        ("407 No\r\nProxy-Authenticate: Negotiate\r\nproxy-authenticate:NTLM", "It requires Negotiate or Ntlm, but only", True),
        ("407 No\r\nProxy-Authenticate: hunter2", "It requires another scheme, but only Basic is supported", True),
        ("403 hunter2", "answered HTTP status 403 Forbidden", True),
        ("405 ", "answered HTTP status 405", True),
        ("301 Moved", "answered HTTP status 301 Moved Permanently", True),
        ("100 Continue", "answered HTTP status 100 Continue", True),
        ("502 Bad Gateway", "the proxy answered HTTP status 502 Bad Gateway", False),
        ("503 Later\x1b[31m", "the proxy answered HTTP status 503 Service Unavailable", False),
        ("504 Timeout", "the proxy answered HTTP status 504", False),
    ],
)
def test_http_statuses_are_told(answer: str, text: str, for_good: bool) -> None:
    with closing(FarEnd()) as far:
        error = error_of(far, "http", f"HTTP/1.1 {answer}\r\nServer: squid\r\n\r\n<html>".encode())
        assert text in str(error)
        assert isinstance(error, AuthenticationError) is for_good
        assert str(error).isprintable()


def test_a_login_that_http_refuses_is_an_error_at_once(far: FarEnd) -> None:
    error = error_of(far, "http", b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n", login=LOGIN)
    assert isinstance(error, AuthenticationError)
    assert error.message.endswith("HTTP status 407 Proxy Authentication Required. Check the user and password of proxy.url")


@every(
    "answer, text",
    [
        (b"\x15\x03\x03\x00\x02\x02", r"does not speak HTTP: it answered b'\x15\x03\x03\x00\x02'"),
        (b"SSH-2.0-OpenSSH", "does not speak HTTP: it answered b'SSH-2'"),
        (b"HTTP/2\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEADER_BYTES, "more than 16,384 bytes of headers"),
        (b"HTTP/1.1 " + b"9" * MAX_HEADER_BYTES, "does not speak HTTP"),
    ],
)
def test_wrong_answers_of_http_are_errors_at_once(answer: bytes, text: str) -> None:
    with closing(FarEnd()) as far:
        error = error_of(far, "http", answer)
        assert isinstance(error, AuthenticationError)
        assert text in error.message
        assert len(error.message) < 300


@every("scheme", ["socks5h", "http"])
def test_an_answer_that_is_cut_off_anywhere_is_an_error_that_may_be_tried_again(scheme: str) -> None:
    with closing(FarEnd()) as far:
        answer = b"\x05\x00" + OPEN if scheme == "socks5h" else b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n"
        for size in range(len(answer)):
            channel = far.channel(scheme)
            channel.handshake()
            far.socket.sendall(answer[:size])
            far.socket.shutdown(socket.SHUT_WR)
            with pytest.raises(
                OSError, match=r"^the proxy closed the connection (before it answered|after (1 byte|\d+ bytes) of its answer)"
            ):
                while not channel.handshake():
                    assert select.select([channel], [], [], 5)[0]


@every("scheme", ["socks5h", "http"])
def test_any_bytes_end_in_an_error_or_a_wait(scheme: str) -> None:
    with closing(FarEnd()) as far:
        rng = random.Random(15)
        starts = [b"\x05\x00", b"\x05\x00\x05\x00\x00"] if scheme == "socks5h" else [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", b""]
        for _ in range(300):
            answer = rng.choice(starts) + rng.randbytes(rng.randrange(40)) + b"\r\n\r\n"
            channel = far.channel(scheme)
            channel.handshake()
            with contextlib.suppress(AuthenticationError, OSError):  # the errors of a user; any other one fails the test
                far.says(channel, answer)
            channel.close()


def test_a_proxy_that_says_nothing_is_waited_for_without_work(ends: Ends) -> None:
    plain = PlainChannel.connect(Address(socket.AF_INET, ends.listener.getsockname()))
    ends.selector.register(1, Proxy("http", "127.0.0.1", 1).proxied(plain, *BROKER))
    ends.far[1], _ = ends.listener.accept()
    ends.far[1].settimeout(60)
    ends.poll(100)
    assert ends.far[1].recv(1000) == TUNNEL
    # A poll that found anything to do would return at once: the connection's deadline ends this wait.
    ends.selector.take_counts()
    result = ends.poll(200)
    assert (result.connected, result.disconnected) == ([], [])
    assert ends.selector.take_counts().waited_ns > 150_000_000


def test_a_proxy_that_is_not_there_is_named(ends: Ends) -> None:
    address = Address(socket.AF_INET, ends.listener.getsockname())
    ends.listener.close()
    proxy = Proxy("http", *address.sockaddr)
    ends.selector.register(1, proxy.proxied(PlainChannel.connect(address), *BROKER))
    expected = f"could not connect to b1.example:9092 through the proxy {proxy}: could not reach the proxy: Connection refused"
    assert ends.lost().message == expected
