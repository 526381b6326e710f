"""Proxies between this client and its brokers: SOCKS5 (RFC 1928, RFC 1929) and HTTP CONNECT (RFC 9110, section 9.3.6).

A dialogue with a proxy is a generator without sockets: it yields a `Turn` and receives the bytes that the turn requests.
`ProxiedChannel` transfers the bytes. It never reads past the end of a proxy's answer. So all later bytes come from the broker,
even if a TLS handshake takes over the socket.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import re
import socket
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE
from typing import Final, NoReturn, TypeAlias
from urllib.parse import unquote, urlsplit

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.network.channel import Address, PlainChannel, address_text, check_port, resolve
from spark_kafka_sink.options.secret import Secret, is_reference

SCHEMES: Final = ("socks5", "socks5h", "http")

MAX_HEADER_BYTES: Final = 16_384
"""The maximum size of an HTTP proxy's status line and headers. Squid's are under 1 KB."""

_SOCKS_REPLIES: Final = {
    1: "general failure",
    2: "the connection is not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "the time to live expired",
    7: "it does not support the command CONNECT",
    8: "it does not support this type of address",
}
_SOCKS_FOR_GOOD: Final = frozenset({2, 7, 8})
_HTTP_FOR_A_WHILE: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_HTTP: Final = b"HTTP/"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[0-9] ([0-9]{3})(?: [^\r\n]*)?(?=\r?\n)")
_SCHEMES: Final = frozenset({"Bearer", "Digest", "Kerberos", "Negotiate", "Ntlm"})
_SCHEME_ASKED_FOR: Final = re.compile(rb"\nproxy-authenticate:[ \t]*([A-Za-z0-9-]+)", re.IGNORECASE)
_END_OF_HEADERS: Final = re.compile(rb"\r?\n\r?\n")
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_HOST_NAME: Final = re.compile(rb"[A-Za-z0-9._-]{1,255}")

NO_ACCEPTABLE_METHOD: Final = 0xFF


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and the login for it. Owned by the thread that connects. `str` shows neither user nor password.

    Attributes:
        scheme: "socks5" (broker names are resolved here), "socks5h" or "http" (the proxy resolves them).
        password: None for no login.
    """

    scheme: str
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str | None = field(default=None, repr=False)
    _untried: dict[tuple[str, int], deque[Address]] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{address_text(self.host, self.port)}"

    def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Returns the proxy's addresses, to connect to instead of a broker's. Raises OSError if it has none."""
        try:
            return resolve(self.host, self.port)
        except OSError as error:
            raise OSError(f"could not resolve the host name of the proxy {self}: {error.strerror or error}") from error

    def proxied(self, channel: PlainChannel, host: str, port: int) -> ProxiedChannel:
        """Returns a channel to a broker through the proxy. It takes over a channel to one of the addresses of `resolve`.

        Its handshake asks the proxy to connect to the broker. After that, it is a plain channel.

        Raises:
            OSError: `host` is not a valid host name, or it does not resolve here (socks5).
        """
        try:
            target = self.target(host, port)
        except OSError:
            channel.close()
            raise
        dialogue = (_http_dialogue if self.scheme == "http" else _socks_dialogue)(self, target, (host, port))
        return ProxiedChannel(channel, dialogue, f"{address_text(host, port)} through the proxy {self}")

    def target(self, host: str, port: int) -> _Target:
        """Returns the target to request from the proxy. Raises OSError for an invalid host or port, or an unresolvable host."""
        check_port(port)
        try:
            # Without the zone of an IPv6 address, which means nothing to another machine and may hold any text, even line ends.
            return _Target(ipaddress.ip_address(ipaddress.ip_address(host).packed), port)
        except ValueError:
            pass  # a host name
        if self.scheme != "socks5":
            return _Target(_name(host), port)
        # Each address is tried once before the name is resolved again, as without a proxy (client.dns.lookup=use_all_dns_ips).
        untried = self._untried.setdefault((host, port), deque())
        if not untried:
            untried.extend(resolve(host, port))
        return _Target(ipaddress.ip_address(untried.popleft().sockaddr[0].partition("%")[0]), port)


@dataclass(frozen=True, slots=True)
class _Target:
    """The broker to request from a proxy: an address, or a name in ASCII."""

    host: ipaddress.IPv4Address | ipaddress.IPv6Address | bytes
    port: int

    def for_http(self) -> bytes:
        host = self.host
        if isinstance(host, ipaddress.IPv6Address):
            return f"[{host}]:{self.port}".encode()
        return (host if isinstance(host, bytes) else str(host).encode()) + b":%d" % self.port

    def for_socks(self) -> bytes:
        host, port = self.host, self.port.to_bytes(2, "big")
        if isinstance(host, bytes):
            return b"\x03" + bytes([len(host)]) + host + port
        return (b"\x04" if isinstance(host, ipaddress.IPv6Address) else b"\x01") + host.packed + port


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange with a proxy: bytes to send, then a number of bytes to read. None reads to the end of the HTTP headers."""

    send: bytes = field(repr=False)  # may hold a login
    read: int | None


Dialogue: TypeAlias = Generator[Turn, bytes, None]


def parse_proxy(url: str | Secret) -> Proxy:
    """Parses a proxy URL: scheme://[user:password@]host:port, with user and password percent-encoded.

    References in a secret are resolved now. Their values in user and password are taken as they are, without percent-decoding.

    Raises:
        OptionError: the URL is not valid. The message never shows a user or password.
    """
    secret = url if isinstance(url, Secret) else Secret(url, None)
    if is_reference(secret.unresolved()):
        secret = Secret(secret.reveal(), None)
    # References and their values may hold slashes and colons, so characters that no URL has replace them during the parsing.
    references: dict[str, str] = {}

    def sign_of(match: re.Match[str]) -> str:
        sign = chr(0xE000 + len(references))
        references[sign] = secret.with_text(match[0]).reveal()
        return sign

    def read(text: str) -> str:
        return "".join(references.get(each, each) for each in text)

    login, at, rest = _REFERENCE.sub(sign_of, secret.unresolved().strip()).rpartition("@")
    try:
        parts = urlsplit(login + at + read(rest))
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        _refuse_url(
            "its host or port is not valid; write socks5h://user:password@host:1080 with @ : / in the password as %40 %3A %2F"
        )
    if scheme not in SCHEMES or not parts.netloc:
        _refuse_url(f"the URL must begin with one of {', '.join(f'{name}://' for name in SCHEMES)}")
    if not host or not port:
        # The apparent host may be part of a password that contains @ or /.
        example = f"{scheme}://user:password@host:{1080 if scheme != 'http' else 3128}"
        _refuse_url(f"the URL must name a host and a port; write {example} with @ : / in the password as %40 %3A %2F")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        _refuse_url("nothing may follow the port; write @ : / in a user or password as %40 %3A %2F")
    user, password = read(unquote(parts.username or "")), read(unquote(parts.password or ""))
    if password and not user:
        _refuse_url("the URL has a password but no user")
    if scheme == "http" and ":" in user:
        _refuse_url("the user of an HTTP proxy must not contain a colon")
    if scheme != "http" and max(len(_bytes(user)), len(_bytes(password))) > 255:
        _refuse_url("SOCKS5 allows at most 255 bytes each for user and password")
    return Proxy(scheme, host, port, user, password if user else None)


def _bytes(text: str) -> bytes:
    # A lone surrogate, which is not valid UTF-8, makes a wrong password instead of a UnicodeEncodeError that shows the password.
    return text.encode(errors="surrogatepass")


def _refuse_url(text: str) -> NoReturn:
    # "from None": urlsplit's own errors quote the URL with its password.
    raise OptionError(f"option proxy.url: {text}", option="proxy.url") from None


class ProxiedChannel(PlainChannel):
    """A TCP socket to a proxy and, after the handshake, to a broker. Owned by the thread that polls its selector."""

    def __init__(self, channel: PlainChannel, dialogue: Dialogue, peer: str) -> None:
        super().__init__(channel.detach(), peer)
        self._dialogue = dialogue
        self._turn: Turn | None = next(dialogue)
        self._unsent = self._turn.send
        self._answer = bytearray()

    @property
    def interest(self) -> int:
        return EVENT_WRITE if self._unsent else EVENT_READ

    def finish_connect(self) -> bool:
        try:
            return super().finish_connect()
        except OSError as error:
            raise OSError(error.errno, f"could not reach the proxy: {error.strerror or error}") from error

    def handshake(self) -> bool:
        """Continues the dialogue with the proxy. Returns whether the proxy has connected to the broker.

        Raises:
            AuthenticationError: the proxy refused, and would refuse again.
            OSError: the proxy cannot connect to the broker now, or closed the connection.
        """
        while (turn := self._turn) is not None:
            self._unsent = self._unsent[self.send([self._unsent]) :] if self._unsent else b""
            if self._unsent or not self._read(turn):
                return False
            answer, self._answer = bytes(self._answer), bytearray()
            try:
                self._turn = self._dialogue.send(answer)
                self._unsent = self._turn.send
            except StopIteration:
                self._turn = None
        return True

    def _read(self, turn: Turn) -> bool:
        """Reads exactly the bytes that `turn` requests. Returns whether all have arrived."""
        while turn.read is None or len(self._answer) < turn.read:
            wanted = turn.read - len(self._answer) if turn.read is not None else MAX_HEADER_BYTES + 1 - len(self._answer)
            try:
                # The end of the HTTP headers is unknown until it arrives: peek first, then read no further.
                seen = self._socket.recv(wanted, socket.MSG_PEEK if turn.read is None else 0)
                if turn.read is None and seen:
                    end = _END_OF_HEADERS.search(bytes(self._answer) + seen)
                    seen = self._socket.recv(end.end() - len(self._answer) if end else len(seen))
                    if end or len(self._answer) + len(seen) > MAX_HEADER_BYTES:
                        self._answer += seen
                        return True
            except (BlockingIOError, InterruptedError):
                return False
            if not seen:
                done = f"after {counted(len(self._answer), 'byte')} of its answer" if self._answer else "before it answered"
                raise OSError(f"the proxy closed the connection {done}")
            self._answer += seen
        return True


def _socks_dialogue(proxy: Proxy, target: _Target, broker: tuple[str, int]) -> Dialogue:
    """Runs the SOCKS5 dialogue of RFC 1928. If there is a user, it offers both methods and the proxy chooses."""
    methods = b"\x00\x02" if proxy.password is not None else b"\x00"
    answer = yield Turn(b"\x05" + bytes([len(methods)]) + methods, 2)
    _check_socks(proxy, broker, answer)
    if answer[1] == NO_ACCEPTABLE_METHOD:
        asked = (
            "no login, and no login by user and password either"
            if proxy.password is not None
            else "no connection without a login"
        )
        todo = "" if proxy.password is not None else f". Write proxy.url as {proxy.scheme}://user:password@host:port"
        _refuse(proxy, broker, f"accepts {asked}{todo}")
    if answer[1] not in methods:
        _refuse(proxy, broker, f"chose login method {answer[1]}, which was not offered")
    if answer[1] == 2 and proxy.password is not None:
        user, password = _bytes(proxy.user), _bytes(proxy.password)
        answer = yield Turn(b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password, 2)
        if answer[1] != 0:
            _refuse(proxy, broker, f"refused the user or password of proxy.url (status {answer[1]})")
    answer = yield Turn(b"\x05\x01\x00" + target.for_socks(), 2)
    _check_socks(proxy, broker, answer)
    if code := answer[1]:
        text = f"{_SOCKS_REPLIES.get(code, 'an unknown failure')} (SOCKS reply {code})"
        if code in _SOCKS_FOR_GOOD:
            hint = ". Write socks5:// in proxy.url to resolve names here" if code == 8 and proxy.scheme == "socks5h" else ""
            _refuse(proxy, broker, f"answered: {text}{hint}")
        raise OSError(f"the proxy answered: {text}")
    # The address that the proxy connects from is read too, or it would be taken for the broker's bytes.
    answer = yield Turn(b"", 2)
    if (length := {1: 4, 3: None, 4: 16}.get(answer[1], 0)) == 0:
        _refuse(proxy, broker, f"answered an address of the unknown type {answer[1]}")
    if length is None:
        length = (yield Turn(b"", 1))[0]
    yield Turn(b"", length + 2)


def _check_socks(proxy: Proxy, broker: tuple[str, int], answer: bytes) -> None:
    if answer[0] != 5:
        _refuse(proxy, broker, f"does not speak SOCKS5: it answered {answer!r}")


def _http_dialogue(proxy: Proxy, target: _Target, broker: tuple[str, int]) -> Dialogue:
    """Requests a tunnel, with Basic authentication (RFC 7617) if there is a user."""
    address = target.for_http()
    lines = [b"CONNECT %b HTTP/1.1" % address, b"Host: " + address]
    if proxy.password is not None:
        login = base64.b64encode(_bytes(f"{proxy.user}:{proxy.password}"))
        lines.append(b"Proxy-Authorization: Basic " + login)
    answer = yield Turn(b"\r\n".join(lines) + b"\r\n\r\n", len(_HTTP))
    if answer != _HTTP:
        _refuse(proxy, broker, f"does not speak HTTP: it answered {answer!r}")
    answer += yield Turn(b"", None)
    status = _STATUS_LINE.match(answer)
    if status is None:
        _refuse(proxy, broker, "does not speak HTTP: its first line is not a status line")
    code = int(status[1])
    if 200 <= code < 300 and _END_OF_HEADERS.search(answer):
        return
    if 200 <= code < 300:
        _refuse(proxy, broker, f"answered more than {MAX_HEADER_BYTES:,} bytes of headers")
    text = f"HTTP status {code} {http.client.responses.get(code, '')}".rstrip()
    if code in _HTTP_FOR_A_WHILE:
        raise OSError(f"the proxy answered {text}")
    _refuse(proxy, broker, f"answered {text}{_login_hint(proxy, code, answer)}")


def _login_hint(proxy: Proxy, code: int, answer: bytes) -> str:
    if code not in (401, 407):  # tinyproxy answers 401 to a wrong password
        return ""
    schemes = [scheme.decode().title() for scheme in _SCHEME_ASKED_FOR.findall(answer)]
    if schemes and "Basic" not in schemes:
        known = " or ".join(scheme for scheme in schemes if scheme in _SCHEMES) or "another scheme"
        return f". It requires {known}, but only Basic is supported"
    if proxy.password is None:
        return ". Write proxy.url as http://user:password@host:port"
    return ". Check the user and password of proxy.url"


def _refuse(proxy: Proxy, broker: tuple[str, int], text: str) -> NoReturn:
    address = address_text(*broker)
    raise AuthenticationError(
        f"could not connect to {address}: the proxy {proxy} {text}", broker=address, proxy=str(proxy), option="proxy.url"
    )


def _name(host: str) -> bytes:
    """Returns a host name as sent to a proxy. The name comes from a broker, so it must not be able to add a header."""
    try:
        name = host.encode("idna")
    except UnicodeError:
        name = b""
    if not _HOST_NAME.fullmatch(name):
        raise OSError(f"{host!r} is not a valid host name")
    return name
