"""Tokens from an OIDC provider over real sockets, from servers that answer well and badly; and from files."""

from __future__ import annotations

import base64
import json
import logging
import math
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.security.http import HttpTimeouts
from spark_kafka_sink.security.sasl.oauthbearer import claims_of, unsigned_jwt
from spark_kafka_sink.security.sasl.oidc import OidcTokens, TokenEndpoint, TokenFile
from tests.every import every
from tests.security.certificates import Authority, server_context
from tests.security.sasl.http_servers import Answer, http_server, raw_server, silent, tunnel
from tests.waiting import HOUR_S

pytestmark = pytest.mark.usefixtures("no_proxy")

SECRET = "s3cret+/=&%ü"
EXPIRY = 2_000_000_000


class Pauses:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))

    def clock(self) -> float:
        return sum(self.slept)


def endpoint(url: str, **changes: Any) -> TokenEndpoint:
    settings: dict[str, Any] = {"url": url, "client_id": "client,1", "client_secret": Secret(SECRET)}
    return TokenEndpoint(**{**settings, **changes})


def tokens(url: str, pauses: Pauses | None = None, **changes: Any) -> OidcTokens:
    pauses = pauses or Pauses()
    return OidcTokens(endpoint(url, **changes), sleep=pauses.sleep, clock=pauses.clock)


def granted(**fields: object) -> Answer:
    token = unsigned_jwt({"sub": "alice", "exp": EXPIRY, "client": "client-1"})
    return Answer(200, json.dumps({"access_token": token, "token_type": "Bearer", **fields}).encode())


def refused(url: str, **changes: Any) -> str:
    with pytest.raises(AuthenticationError) as error:
        tokens(url, **changes)("broker")
    said = str(error.value)
    assert SECRET not in said
    assert "s3cret" not in said
    return error.value.message


# What is asked, and what is made of the answer


def test_client_credentials_become_a_token() -> None:
    with http_server(granted()) as server:
        token = tokens(server.url, scope=" read write ")("broker")

    (asked,) = server.requests
    assert (asked.method, asked.path, asked.body) == ("POST", "/token", b"grant_type=client_credentials&scope=read+write")
    assert base64.b64decode(asked.headers["Authorization"].removeprefix("Basic ")).decode() == f"client,1:{SECRET}"
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert asked.headers["Accept"] == "application/json"
    assert (token.expires_at, token.principal) == (EXPIRY, "alice")
    assert claims_of(token.value.reveal()) == {"sub": "alice", "exp": EXPIRY, "client": "client-1"}


def test_the_header_is_encoded_as_rfc_6749_asks_if_it_is_to_be() -> None:
    with http_server(granted()) as server:
        tokens(server.url, encodes_header=True)("broker")

    sent = base64.b64decode(server.requests[0].headers["Authorization"].removeprefix("Basic ")).decode()
    assert sent == "client%2C1:s3cret%2B%2F%3D%26%25%C3%BC"
    assert server.requests[0].body == b"grant_type=client_credentials"


@pytest.mark.parametrize("status", [200, 201])
def test_an_opaque_token_lives_as_long_as_the_endpoint_says(status: int) -> None:
    answer = Answer(status, b'{"access_token": " opaque ", "expires_in": "3600"}')
    before = time.time()
    with http_server(answer) as server:
        token = tokens(server.url)("broker")

    assert before + 3600 <= token.expires_at <= time.time() + 3600
    assert (token.value.reveal(), token.principal) == ("opaque", "")


def test_the_claim_of_the_token_counts_before_what_the_endpoint_says() -> None:
    with http_server(granted(expires_in=5)) as server:
        assert tokens(server.url)("broker").expires_at == EXPIRY


def test_another_claim_may_name_the_principal() -> None:
    with http_server(granted()) as server:
        assert tokens(server.url, subject_claim="client")("broker").principal == "client-1"


# Refusals


@every(
    "answer, words",
    [
        (
            Answer(401, json.dumps({"error": "invalid_client", "error_description": f"Bad secret {SECRET}"}).encode()),
            "returned HTTP 401: invalid_client",
        ),
        (Answer(400, b'{"error":"invalid_scope"}'), "HTTP 400: invalid_scope"),
        (Answer(403, b'{"error":["invalid_scope"]}'), "returned HTTP 403"),
        (Answer(400, json.dumps({"error": SECRET.encode().hex()}).encode()), "returned HTTP 400"),
        (Answer(404, b"<html>\n  not here\n</html>"), "returned HTTP 404"),
        (Answer(405, b""), "returned HTTP 405"),
        (Answer(501, b'{"error":'), "returned HTTP 501"),
        (Answer(200, b'{"id_token": "x.y.z", "error": "?"}'), "has no access_token"),
        (Answer(200, b'{"error": "server_error"}'), "has no access_token: server_error"),
        (Answer(200, b'{"access_token": 17}'), "has no access_token"),
        (Answer(200, b'{"access_token": " "}'), "has no access_token"),
        (Answer(200, b"[]"), "has no access_token"),
        (Answer(200, b"{}"), "has no access_token"),
    ],
)
def test_what_another_try_would_not_change_is_an_error_at_once(answer: Answer, words: str) -> None:
    pauses = Pauses()
    with http_server(answer) as server:
        said = refused(server.url, pauses=pauses)

    assert said.endswith(words)
    assert f"the token endpoint {server.url}" in said or f"the response of the token endpoint {server.url}" in said
    assert (pauses.slept, len(server.requests)) == ([], 1)


@every("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_not_followed_with_the_secret(status: int) -> None:
    moved = Answer(status)
    with http_server(granted()) as other, http_server(moved) as server:
        moved.headers["Location"] = f"{other.url}?session=1"
        said = refused(server.url)

    assert f"redirects (HTTP {status}), which is not followed" in said
    assert other.url not in said
    assert other.requests == []


def test_what_may_pass_is_tried_again_as_java_does() -> None:
    pauses = Pauses()
    with http_server(Answer(503, b"busy"), Answer(429, b"slow down"), Answer(500), granted()) as server:
        token = tokens(server.url, pauses)("broker")

    assert token.principal == "alice"
    assert pauses.slept == [0.1, 0.2, 0.4]


def test_tries_end_after_the_longest_back_off() -> None:
    pauses = Pauses()
    with http_server(Answer(503, b'{"error":"temporarily_unavailable"}')) as server:
        said = refused(server.url, pauses=pauses, backoff_ms=100, backoff_max_ms=1000)

    assert said.endswith("returned HTTP 503: temporarily_unavailable (5 tries)")
    assert pauses.slept == [0.1, 0.2, 0.4, 0.3]


@pytest.mark.parametrize("body", [b"", b"hello", b"\xff\xfe", b'{"access_token": "abc', b"[" * 100_000])
def test_garbage_is_tried_again_and_not_quoted(body: bytes) -> None:
    with http_server(Answer(200, body)) as server:
        said = refused(server.url, backoff_ms=0)

    assert said == f"the response of the token endpoint {server.url} is not JSON"


# Servers that are slow, large, or not of HTTP


def once(serve: Callable[[socket.socket], None], **changes: Any) -> str:
    """Returns what the error says."""
    with raw_server(serve) as url:
        return refused(url, backoff_ms=0, **changes).replace(url, "URL")


def asked(connection: socket.socket) -> None:
    """Reads the request."""
    data = b""
    while not data.endswith(b"client_credentials"):
        more = connection.recv(65536)
        if not more:
            raise OSError("the client has gone")
        data += more


def drip(first: bytes) -> Callable[[socket.socket], None]:
    """Sends a byte each 10 ms, for ever."""

    def serve(connection: socket.socket) -> None:
        asked(connection)
        connection.sendall(first)
        while True:
            connection.sendall(b"x")
            time.sleep(0.01)

    return serve


@pytest.mark.parametrize(
    "first",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 500 no\r\n\r\n"],
)
def test_a_slow_server_cannot_stretch_the_deadline(first: bytes) -> None:
    said = once(drip(first), timeouts=HttpTimeouts(5, 0.1))

    assert said == "timed out waiting for the token endpoint URL"


def test_a_server_that_says_nothing() -> None:
    said = once(silent, timeouts=HttpTimeouts(HOUR_S, 0.05))

    assert said == "timed out waiting for the token endpoint URL"


def answering(data: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        asked(connection)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        silent(connection)

    return serve


@every(
    "data, words",
    [
        (b"", "sent no valid HTTP response"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "sent no valid HTTP response: BadStatusLine"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "sent no valid HTTP response"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, "sent no valid HTTP response: HTTPException"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf", "the response ended 46 bytes early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "sent no valid HTTP response"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1_100_000, "the response has more than 1,048,576 bytes"),
        (b"HTTP/1.1 500 no\r\n\r\n" + b" " * 1_100_000, "the response has more than 1,048,576 bytes"),
    ],
)
def test_answers_that_are_none(data: bytes, words: str) -> None:
    said = once(answering(data))

    assert words in said


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "Connection refused" in refused(f"http://localhost:{port}/token", backoff_ms=0)


# TLS and proxies


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """Returns the context of a server with a certificate for this name, and the file for those that trust its authority."""
    authority = Authority.root("Identity Authority")
    trusted = folder / "ca.pem"
    trusted.write_text(authority.chain_pem)
    return server_context(authority.issue(name, (name,)), folder), trusted


def test_an_authority_of_its_own_for_the_token_endpoint(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "localhost")
    with http_server(granted(), tls=context) as server:
        assert tokens(server.url, ca_location=str(trusted))("broker").principal == "alice"
        said = refused(server.url)

    assert said.startswith(
        f"the certificate of the token endpoint {server.url} is not trusted: unable to get local issuer certificate"
    )
    assert said.endswith("Set sasl.oauthbearer.ca.location to the authority that signed it")


def test_a_certificate_of_another_host_is_refused(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "other.example")
    with http_server(granted(), tls=context) as server:
        said = refused(server.url, ca_location=str(trusted))

    assert "is not trusted: Hostname mismatch" in said
    assert server.requests == []


def test_a_file_of_authorities_that_is_none(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing")
    for path in (empty, tmp_path / "missing.pem"):
        said = refused("https://localhost:1/token", ca_location=str(path))
        assert said.startswith(f"sasl.oauthbearer.ca.location: {path} is not a readable PEM file of certificates")


def test_tls_to_a_plain_port_is_no_answer() -> None:
    with http_server(granted()) as server:
        said = refused(server.url.replace("http:", "https:"), backoff_ms=0)

    assert "sent no valid HTTP response" in said


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(granted()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/token"))
        token = tokens("http://identity.example/token")("broker")
        monkeypatch.setenv("no_proxy", "localhost")
        with http_server(granted()) as direct:
            tokens(direct.url)("broker")

    assert token.principal == "alice"
    # A thread that fetches a token for an earlier test may still run, and uses the proxy as well.
    paths = [asked.path for asked in proxy.requests]
    assert paths.count("http://identity.example/token") == 1
    assert direct.url not in paths
    assert [asked.path for asked in direct.requests] == ["/token"]


def test_https_goes_through_a_tunnel_of_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, trusted = certificate(tmp_path, "identity.example")
    heads = list[bytes]()
    with http_server(granted(), tls=context) as server, raw_server(tunnel(heads, server.port)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.removesuffix("/token").replace("://", "://user:pass@"))
        token = tokens("https://identity.example/token", ca_location=str(trusted))("broker")

    (head,) = heads
    assert token.principal == "alice"
    assert head.startswith(b"CONNECT identity.example:443 ")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz\r\n" in head
    assert b"\r\nAuthorization:" not in head  # the client secret is for the endpoint only
    assert "Proxy-Authorization" not in server.requests[0].headers


def refusing(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    silent(connection)


@pytest.mark.parametrize(
    ("answer", "read_s", "words"),
    [
        (refusing, 30, "Tunnel connection failed: 407"),
        (silent, 0.1, "timed out waiting for the token endpoint https://identity.example/token"),
    ],
)
def test_a_proxy_that_gives_no_tunnel(
    answer: Callable[[socket.socket], None], read_s: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw_server(answer) as proxy:
        monkeypatch.setenv("https_proxy", proxy.removesuffix("/token"))
        said = refused("https://identity.example/token", backoff_ms=0, timeouts=HttpTimeouts(30, read_s))

    assert words in said


# Settings, logs


@every(
    "url, words",
    [
        ("ftp://host/token", "must be an http, https or file URL"),
        ("host/token", "must be an http, https or file URL"),
        ("https:///token", "must be an http, https or file URL"),
        ("https://user:pass@host/token", "a user in the URL is not supported"),
        ("https://host:port/token", "is not a valid URL"),
        ("https://[::1/token", "is not a valid URL"),
    ],
)
def test_a_url_that_is_none(url: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as wrong:
        tokens(url)

    assert "pass" not in str(wrong.value)


def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with http_server(Answer(500, SECRET.encode()), granted()) as server:
        token = tokens(server.url)("broker")

    assert "retrying the token endpoint" in caplog.text
    assert SECRET not in caplog.text
    assert token.value.reveal() not in caplog.text + repr(token)
    assert SECRET not in repr(endpoint("http://localhost"))


# Files


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    source = TokenFile(str(file))
    file.write_text(unsigned_jwt({"sub": "alice", "exp": EXPIRY}) + "\n")
    first = source("broker")
    file.write_text("opaque")
    second = source("broker")

    assert (first.principal, first.expires_at) == ("alice", EXPIRY)
    assert (second.value.reveal(), second.expires_at) == ("opaque", math.inf)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), (b" \n", "is empty"), (b"x" * 1_100_000, "has more than 1,048,576 bytes")],
)
def test_a_file_without_a_token(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(AuthenticationError, match=words) as error:
        TokenFile(str(file))("broker")

    assert str(file) in str(error.value)
