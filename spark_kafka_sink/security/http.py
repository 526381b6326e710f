"""One HTTP request with strict deadlines, and a response of limited size."""

from __future__ import annotations

import base64
import http.client
import io
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from typing import IO, Any, Final

from spark_kafka_sink.counts import counted

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Default maximum size of a response. Tokens have a few KB."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request. `headers` may hold secrets, which its repr does not show."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response. `headers` has the names in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def location(self) -> str:
        """The target of a redirect; empty if there is none."""
        return self.headers.get("location", "")


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """Time limits, in s. Looking up a host name is not limited, because the system cannot be interrupted in it.

    Attributes:
        connect_s: to connect, including a proxy's answer and TLS.
        read_s: from the request to the last byte of the response. A proxy's answer has this limit, too.
        total_s: from the start to the last byte of the response; None: `connect_s` and `read_s` together.
    """

    connect_s: float
    read_s: float
    total_s: float | None = None


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy that is used in place of the environment's. authorization: its Proxy-Authorization header; empty for none."""

    address: str
    authorization: str = field(default="", repr=False)


def send(
    request: HttpRequest,
    timeouts: HttpTimeouts,
    tls: ssl.SSLContext | None,
    proxy: HttpProxy | None = None,
    *,
    max_bytes: int = MAX_ANSWER_BYTES,
) -> HttpAnswer:
    """Sends a request. Does not follow redirects, because headers hold secrets.

    Args:
        request: What to send.
        timeouts: Time limits.
        tls: For https.
        proxy: The proxy to use; None for the environment's, if there is one.
        max_bytes: The maximum size of the response.

    Raises OSError, http.client.HTTPException or ValueError if there is no response.
    """
    handlers: list[urllib.request.BaseHandler] = [_HttpHandler(timeouts), _HttpsHandler(timeouts, tls), _NoRedirection()]
    sent = urllib.request.Request(request.url, data=request.body, headers=dict(request.headers), method=request.method)
    if proxy is not None:
        handlers.append(urllib.request.ProxyHandler({}))  # neither the environment's proxy nor its exceptions
        if proxy.authorization:
            sent.add_header("Proxy-Authorization", proxy.authorization)
        sent.set_proxy(proxy.address, "http")
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(sent, timeout=timeouts.connect_s) as answer:
            return HttpAnswer(answer.status, _limited(answer, max_bytes), _by_lower_name(answer.headers))
    except urllib.error.HTTPError as error:
        with error:
            return HttpAnswer(error.code, _limited(error, max_bytes), _by_lower_name(error.headers))
    except urllib.error.URLError as error:
        if isinstance(error.reason, OSError):
            raise error.reason from None
        raise OSError(str(error.reason)) from None


class AnswerError(ValueError):
    """A response that is not accepted. Its text quotes nothing of the response."""


def why(error: Exception) -> str:
    """Returns why `send` got no response, without what the peer sent: it may repeat a secret of the request in any encoding."""
    if isinstance(error, OSError):
        # A proxy's own words follow the status.
        return re.sub(
            r"^(Tunnel connection failed: \d+).*", r"\1", error.strerror or str(error) or type(error).__name__, flags=re.DOTALL
        )
    return str(error) if isinstance(error, AnswerError) else type(error).__name__


def basic(user: str, password: str) -> str:
    """Returns the value of an Authorization header (RFC 7617).

    The text is encoded as standard Base64 with + and /, not as the URL-safe variant (KAFKA-14496).
    """
    # A lone surrogate, which is not valid UTF-8, makes a wrong password instead of an error that shows the password.
    return "Basic " + base64.b64encode(f"{user}:{password}".encode(errors="surrogatepass")).decode()


def shown(url: str) -> str:
    """Returns a valid URL as errors show it: without user, query and fragment."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _by_lower_name(headers: Message[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _limited(answer: IO[bytes], max_bytes: int) -> bytes:
    body = answer.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise AnswerError(f"the response has more than {max_bytes:,} bytes")
    missing = getattr(answer, "length", None)  # HTTPResponse.read(n) ignores an early end
    if missing:
        raise AnswerError(f"the response ended {counted(missing, 'byte')} early")
    return body


class _Clock:
    """The absolute deadlines of one request. A socket's own timeout starts again with each step, and with each byte."""

    def __init__(self, timeouts: HttpTimeouts) -> None:
        start, both_s = time.monotonic(), timeouts.connect_s + timeouts.read_s
        self._read_s = timeouts.read_s
        self._end = start + (both_s if timeouts.total_s is None else timeouts.total_s)
        self._now_until = min(self._end, start + timeouts.connect_s)

    def connected(self) -> None:
        """Notes that the time to connect does not count any more."""
        self._now_until = self._end

    def read_until(self) -> float:
        """Returns the deadline of a response that is read from now on."""
        return min(self._now_until, time.monotonic() + self._read_s)

    def left_s(self, deadline: float | None = None) -> float:
        """Returns the time left. Raises TimeoutError if there is none."""
        left = (self._now_until if deadline is None else deadline) - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def connection(self, address: tuple[str, int], _: object, source: tuple[str, int] | None) -> socket.socket:
        """Connects to one of a host's addresses: socket.create_connection with one deadline for all of them."""
        failed: OSError | None = None
        for family, kind, protocol, _name, place in socket.getaddrinfo(*address, 0, socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self.left_s())
                if source is not None:
                    sock.bind(source)
                sock.connect(place)
                sock.settimeout(self.left_s())
            except OSError as error:
                sock.close()
                failed = error
            else:
                return sock
        raise failed or OSError(f"{address[0]} has no address")


class _DeadlineReader(io.RawIOBase):
    """Reads a socket until a deadline, and leaves it the time that remains."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, clock: _Clock) -> None:
        self._raw = raw
        self._sock = sock
        self._clock = clock
        self._deadline = clock.read_until()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._clock.left_s(self._deadline))
        count = self._raw.readinto(buffer)
        self._sock.settimeout(self._clock.left_s())  # for the TLS handshake behind a proxy
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, clock: _Clock, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        raw: Any = sock.makefile("rb", buffering=0)
        self.fp.close()
        self.fp = io.BufferedReader(_DeadlineReader(raw, sock, clock))


class _TimedConnection(http.client.HTTPConnection):
    """A connection whose steps have the deadlines of one clock."""

    _create_connection: Any  # of the base class, which calls it to connect

    def __init__(self, clock: _Clock, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock = clock
        self._create_connection = clock.connection
        self.response_class: Any = partial(_Response, clock)

    def connect(self) -> None:
        super().connect()
        self._clock.connected()
        self.sock.settimeout(self._clock.left_s())


class _TimedTlsConnection(_TimedConnection, http.client.HTTPSConnection):
    pass


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, timeouts: HttpTimeouts) -> None:
        super().__init__()
        self._timeouts = timeouts

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        made: Any = partial(_TimedConnection, _Clock(self._timeouts))
        return self.do_open(made, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, timeouts: HttpTimeouts, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._timeouts = timeouts
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        made: Any = partial(_TimedTlsConnection, _Clock(self._timeouts))
        return self.do_open(made, req, context=self._tls)


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
