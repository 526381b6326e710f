"""One HTTP request with strict deadlines, and a response of limited size."""

from __future__ import annotations

import base64
import http.client
import io
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
    """Time limits. connect_s: to connect, including TLS. read_s: from the request to the last byte of the response."""

    connect_s: float
    read_s: float


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
        raise ValueError(f"the response has more than {max_bytes:,} bytes")
    missing = getattr(answer, "length", None)  # HTTPResponse.read(n) ignores an early end
    if missing:
        raise ValueError(f"the response ended {counted(missing, 'byte')} early")
    return body


class _DeadlineReader(io.RawIOBase):
    """Reads a socket until a deadline: a socket's own timeout restarts with each byte."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: float) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out reading the response")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, read_s: float, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        raw: Any = sock.makefile("rb", buffering=0)
        self.fp.close()
        self.fp = io.BufferedReader(_DeadlineReader(raw, sock, time.monotonic() + read_s))


class _HttpConnection(http.client.HTTPConnection):
    def __init__(self, timeouts: HttpTimeouts, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.response_class: Any = partial(_Response, timeouts.read_s)


class _HttpsConnection(http.client.HTTPSConnection):
    def __init__(self, timeouts: HttpTimeouts, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.response_class: Any = partial(_Response, timeouts.read_s)


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, timeouts: HttpTimeouts) -> None:
        super().__init__()
        self._timeouts = timeouts

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        made: Any = partial(_HttpConnection, self._timeouts)
        return self.do_open(made, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, timeouts: HttpTimeouts, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._timeouts = timeouts
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        made: Any = partial(_HttpsConnection, self._timeouts)
        return self.do_open(made, req, context=self._tls)


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
