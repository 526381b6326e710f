"""One HTTP request with strict deadlines, and a response of limited size."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Final

from spark_kafka_sink.counts import counted

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Maximum size of a response. Tokens have a few KB."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response. `location`: target of a redirect."""

    status: int
    body: bytes
    location: str = ""


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """Time limits. connect_s: to connect, including TLS. read_s: from the request to the last byte of the response."""

    connect_s: float
    read_s: float


def post(url: str, headers: Mapping[str, str], body: bytes, timeouts: HttpTimeouts, tls: ssl.SSLContext | None) -> HttpAnswer:
    """Sends a POST through the environment's proxy, if there is one. Does not follow redirects, because headers hold secrets.

    Raises OSError, http.client.HTTPException or ValueError if there is no response.
    """
    opener = urllib.request.build_opener(_HttpHandler(timeouts), _HttpsHandler(timeouts, tls), _NoRedirection())
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    try:
        with opener.open(request, timeout=timeouts.connect_s) as answer:
            return HttpAnswer(answer.status, _limited(answer))
    except urllib.error.HTTPError as error:
        with error:
            return HttpAnswer(error.code, _limited(error), error.headers.get("Location") or "")
    except urllib.error.URLError as error:
        if isinstance(error.reason, OSError):
            raise error.reason from None
        raise OSError(str(error.reason)) from None


def _limited(answer: IO[bytes]) -> bytes:
    body = answer.read(MAX_ANSWER_BYTES + 1)
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"the response has more than {MAX_ANSWER_BYTES:,} bytes")
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
