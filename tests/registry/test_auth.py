"""Logins to a registry: user and password, tokens, certificates and proxies. No error, log or repr shows a secret."""

from __future__ import annotations

import base64
import html
import json
import logging
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from spark_kafka_sink.errors import AuthenticationError, KafkaSinkError, OptionError, RegistryError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.http import Timing
from spark_kafka_sink.registry.registry_client import RegistryClient, SchemaText
from tests.registry.stand_in import Answer, StandIn
from tests.security.certificates import Certificates, server_context
from tests.security.sasl import http_servers
from tests.security.sasl.http_servers import http_server, raw_server, silent, tunnel

pytestmark = pytest.mark.usefixtures("no_proxy")

SECRET = 'hunter2+/&%ü"\\'
BEARER = "schema.registry.bearer.auth"
USER_INFO = "schema.registry.basic.auth.user.info"
SCHEMA = SchemaText("AVRO", '"int"')


@pytest.fixture
def certificates() -> Certificates:
    return Certificates()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def client(url: str, options: Mapping[str, str], timing: Timing | None = None) -> RegistryClient:
    return RegistryClient(
        registry_config({"schema.registry.url": url, "schema.registry.max.retries": "0", **options}), timing=timing
    )


def refused(url: str, options: Mapping[str, str]) -> KafkaSinkError:
    """Returns the error of a call, which shows no secret."""
    with pytest.raises(KafkaSinkError) as error, client(url, options) as registry:
        registry.register("s", SCHEMA)
    config = registry_config({"schema.registry.url": url, **options})
    assert "hunter2" not in str(error.value) + repr(error.value) + repr(error.value.facts) + repr(config)
    return error.value


def logins(registry: StandIn) -> list[str | None]:
    return [asked.headers.get("Authorization") for asked in registry.requests]


# User and password


@pytest.mark.parametrize("name", [USER_INFO, "basic.auth.user.info"])
def test_user_and_password(name: str, stand_in: StandIn) -> None:
    stand_in.login = basic("alice", f"{SECRET}:x")
    with client(stand_in.url, {name: f"alice:{SECRET}:x"}) as registry:
        assert registry.register("s", SCHEMA).version == 1


def test_user_and_password_in_the_url_are_for_every_url(stand_in: StandIn) -> None:
    url = f"http://alice:a%2Fb%40c@localhost:{stand_in.port}"
    stand_in.fail(Answer(503))
    with StandIn() as other, client(f"{url},{other.url},{other.url.replace('//', '//bob:b@')}", {}) as registry:
        other.fail(Answer(503))
        registry.register("s", SCHEMA)

    assert logins(stand_in) == [basic("alice", "a/b@c")]
    assert logins(other) == [basic("alice", "a/b@c"), basic("bob", "b")]
    assert [asked.path for asked in stand_in.requests] == ["/subjects/s/versions?normalize=false"]


@pytest.mark.fault("schema registry", "a registry, proxy or token endpoint that repeats a password")
@pytest.mark.parametrize("status", [302, 401, 403, 409, 422, 500])
def test_a_registry_that_repeats_the_password_does_not_show_it(
    status: int, stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = f"you sent {SECRET}, {SECRET.encode().hex()}, {html.escape(SECRET)}, {base64.b64encode(SECRET.encode()).decode()}"
    code = f"{status}01"
    for body, numbers in (({"error_code": int(code), "message": said}, f"HTTP {status}, error {code}"), (said, f"HTTP {status}")):
        headers = {"Location": f"http://{SECRET.encode().hex()}/", "Content-Type": f"text/{SECRET.encode().hex()}"}
        stand_in.fail(Answer(status, body if isinstance(body, dict) else body.encode("latin-1"), headers))
        error = refused(stand_in.url, {USER_INFO: f"alice:{SECRET}"})
        assert isinstance(error, RegistryError)
        assert status == 302 or f"returned {numbers}" in error.message
        assert "you sent" not in str(error)
        assert SECRET.encode().hex() not in str(error)
    assert "you sent" not in caplog.text


def test_a_wrong_password_says_so(stand_in: StandIn) -> None:
    stand_in.login = basic("alice", "right")
    error = refused(stand_in.url, {USER_INFO: f"alice:{SECRET}"})

    assert error.message.endswith("returned HTTP 401. It rejected the login: check the user and password, or the token")
    assert (error.facts["status"], error.facts["url"]) == (401, stand_in.url)


def test_a_rotated_password_is_read_again(stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "info"
    file.write_text("alice:old\n")
    stand_in.login = basic("alice", "old")
    with client(stand_in.url, {USER_INFO: f"${{directory:{tmp_path}:info}}"}) as registry:
        registry.register("s", SCHEMA)
        file.write_text("alice:new\n")
        stand_in.login = basic("alice", "new")
        registry.register("s", SCHEMA)
        file.write_text("hunter2")
        with pytest.raises(
            OptionError, match=r"option schema\.registry\.basic\.auth\.user\.info: .* must be user:password"
        ) as error:
            registry.register("s", SCHEMA)
        file.unlink()
        with pytest.raises(OptionError, match=r"option schema\.registry\.basic\.auth\.user\.info: .* is not a file"):
            registry.register("s", SCHEMA)

    assert "hunter2" not in str(error.value)


# Tokens


def test_a_fixed_token(stand_in: StandIn) -> None:
    stand_in.login = "Bearer t0ken"
    options = {
        f"{BEARER}.token": " t0ken\n",
        f"{BEARER}.logical.cluster": "lsrc-1",
        f"{BEARER}.identity.pool.id": "pool-1,pool-2",
    }
    with client(stand_in.url, options) as registry:
        registry.register("s", SCHEMA)

    headers = {name.lower(): value for name, value in stand_in.requests[0].headers.items()}
    assert (headers["target-sr-cluster"], headers["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1,pool-2")


@pytest.mark.parametrize("token", ["hunter2\nX-Other: 1", "hunter2 ü", " ", "hunter2\r", "hunter2\0"])
def test_a_token_that_no_header_may_hold(token: str, stand_in: StandIn) -> None:
    if token.strip() == "hunter2":
        token = f"{token}x"
    error = refused(stand_in.url, {f"{BEARER}.token": token})

    assert isinstance(error, OptionError)
    assert error.message.startswith(f"option {BEARER}.token: the token of this option is empty or has a character")
    assert stand_in.requests == []


def granted(token: str, **fields: object) -> http_servers.Answer:
    return http_servers.Answer(200, json.dumps({"access_token": token, "expires_in": 1000, **fields}).encode())


def oauth(url: str) -> dict[str, str]:
    return {
        f"{BEARER}.credentials.source": "OAUTHBEARER",
        f"{BEARER}.issuer.endpoint.url": url,
        f"{BEARER}.client.id": "me",
        f"{BEARER}.client.secret": SECRET,
        f"{BEARER}.scope": "schemas",
    }


def test_client_credentials_become_a_token_that_is_renewed_after_80_percent_of_its_life(stand_in: StandIn) -> None:
    now = [time.time()]
    timing = Timing(wall=lambda: now[0])
    with http_server(granted("one"), granted("two")) as issuer, client(stand_in.url, oauth(issuer.url), timing) as registry:
        registry.register("s", SCHEMA)
        now[0] += 700
        registry.latest("s")
        now[0] += 110
        registry.latest("s")

    assert logins(stand_in) == ["Bearer one", "Bearer one", "Bearer two"]
    assert [asked.body for asked in issuer.requests] == [b"grant_type=client_credentials&scope=schemas"] * 2
    assert issuer.requests[0].headers["Authorization"] == basic("me", SECRET)


@pytest.mark.fault("schema registry", "401, 403, 404, 407, 409, 413, 422")
def test_a_token_that_was_revoked_is_replaced_once(stand_in: StandIn) -> None:
    with (
        http_server(granted("one"), granted("two"), granted("three")) as issuer,
        client(stand_in.url, oauth(issuer.url)) as registry,
    ):
        registry.register("s", SCHEMA)
        stand_in.login = "Bearer two"
        registry.register("s", SCHEMA)
        stand_in.login = "Bearer of others"
        with pytest.raises(RegistryError, match="HTTP 401"):
            registry.register("s", SCHEMA)

    assert logins(stand_in) == ["Bearer one", "Bearer one", "Bearer two", "Bearer two", "Bearer three"]


def test_a_new_token_that_is_refused_is_not_replaced(stand_in: StandIn) -> None:
    stand_in.login = "Bearer of others"
    with http_server(granted("one"), granted("two")) as issuer:
        error = refused(stand_in.url, oauth(issuer.url))

    assert error.facts["status"] == 401
    assert (len(issuer.requests), logins(stand_in)) == (1, ["Bearer one"])


def test_a_token_endpoint_that_refuses_is_named(stand_in: StandIn) -> None:
    denied = http_servers.Answer(401, json.dumps({"error": "invalid_client", "error_description": SECRET}).encode())
    with http_server(denied) as issuer:
        error = refused(stand_in.url, oauth(issuer.url))

    assert isinstance(error, AuthenticationError)
    assert error.message == f"the token endpoint {issuer.url} returned HTTP 401: invalid_client"
    assert stand_in.requests == []


def test_a_token_endpoint_that_says_nothing_times_out_with_the_call(stand_in: StandIn) -> None:
    with raw_server(silent) as url:
        config = registry_config({"schema.registry.url": stand_in.url, **oauth(url)})
        with (
            RegistryClient(config, call_s=0.05) as registry,
            pytest.raises(AuthenticationError, match="timed out waiting for the"),
        ):
            registry.latest("s")

    assert stand_in.requests == []


def test_a_token_that_no_header_may_hold_is_not_sent(stand_in: StandIn) -> None:
    with http_server(granted("hunter2\nX: y")) as issuer:
        error = refused(stand_in.url, oauth(issuer.url))

    assert error.message.startswith(f"option {BEARER}.issuer.endpoint.url: the token of this option")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({f"{BEARER}.issuer.endpoint.url": "ftp://x"}, f"option {BEARER}.issuer.endpoint.url: the value must be an http"),
        ({f"{BEARER}.issuer.endpoint.url": "${env:WITH_USER}"}, f"option {BEARER}.issuer.endpoint.url: a user in the URL"),
        ({f"{BEARER}.client.id": "${env:NOBODY_SET_IT}"}, f"option {BEARER}.client.id: "),
        ({f"{BEARER}.client.secret": "${env:NOBODY_SET_IT}"}, f"option {BEARER}.client.secret: "),
        ({f"{BEARER}.issuer.ca.location": "${env:EMPTY}"}, f"option {BEARER}.issuer.ca.location: its reference resolves to an"),
    ],
)
def test_settings_of_client_credentials_that_are_not_valid(
    changes: dict[str, str], words: str, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("WITH_USER", "https://alice:hunter2@issuer")
    error = refused(stand_in.url, {**oauth("https://localhost:1"), **changes})

    assert error.message.startswith(words)


def test_an_authority_of_the_token_endpoint(certificates: Certificates, stand_in: StandIn, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text(certificates.authority.chain_pem)
    with http_server(granted("one"), tls=server_context(certificates.server, tmp_path)) as issuer:
        with client(stand_in.url, {**oauth(issuer.url), f"{BEARER}.issuer.ca.location": str(authority)}) as registry:
            registry.register("s", SCHEMA)
        error = refused(stand_in.url, oauth(issuer.url))

    assert error.message.endswith(f"Set {BEARER}.issuer.ca.location to the authority that signed it")


# The witness


LOGIN_HEADERS = ("authorization", "target-sr-cluster", "confluent-identity-pool-id")
CLOUD = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1,pool-2"}


@pytest.mark.parametrize(
    "options",
    [
        {"basic.auth.user.info": f"alice:{SECRET}:x"},
        {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "t0ken", **CLOUD},
        {
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.client.id": "me",
            "bearer.auth.client.secret": "s",
            **CLOUD,
        },
    ],
    ids=["basic", "static", "oauth"],
)
def test_confluents_client_sends_the_same_login(options: dict[str, str], stand_in: StandIn) -> None:
    with http_server(granted("one", token_type="Bearer")) as issuer:
        if options.get("bearer.auth.credentials.source") == "OAUTHBEARER":
            options = {**options, "bearer.auth.issuer.endpoint.url": issuer.url, "bearer.auth.scope": "schemas"}
        with client(stand_in.url, {f"schema.registry.{name}": value for name, value in options.items()}) as ours:
            ours.latest("s")
        with SchemaRegistryClient({"url": stand_in.url, **options}) as theirs, pytest.raises(SchemaRegistryError):
            theirs.get_latest_version("s")

    sent = [{name.lower(): value for name, value in asked.headers.items()} for asked in stand_in.requests]
    first, second = ({name: headers.get(name) for name in LOGIN_HEADERS} for headers in sent)
    assert first == second
    assert first["authorization"] is not None


# TLS


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.fixture
def authority(certificates: Certificates, tmp_path: Path) -> dict[str, str]:
    return {"schema.registry.ssl.ca.location": written(tmp_path, "ca.pem", certificates.authority.chain_pem)}


@pytest.mark.fault("schema registry", "a wrong certificate, another host's, a proxy that refuses")
def test_an_authority_of_its_own(certificates: Certificates, authority: dict[str, str], tmp_path: Path) -> None:
    with StandIn(server_context(certificates.server, tmp_path)) as registry:
        with client(registry.url, authority) as ours:
            assert ours.register("s", SCHEMA).version == 1
        error = refused(registry.url, {USER_INFO: f"alice:{SECRET}"})

    assert "is not trusted: " in error.message
    assert error.message.endswith("Set schema.registry.ssl.ca.location to the authority that signed it")
    assert len(registry.requests) == 1


@pytest.mark.fault("schema registry", "a wrong certificate, another host's, a proxy that refuses")
def test_a_certificate_of_another_host(certificates: Certificates, authority: dict[str, str], tmp_path: Path) -> None:
    with StandIn(server_context(certificates.elsewhere, tmp_path)) as registry:
        error = refused(registry.url, authority)
        with client(registry.url, {**authority, "schema.registry.ssl.endpoint.identification.algorithm": ""}) as ours:
            ours.register("s", SCHEMA)

    assert "is not trusted: Hostname mismatch" in error.message
    assert error.message.endswith("Set schema.registry.url to a host name of the certificate")


def test_a_certificate_of_the_client(certificates: Certificates, authority: dict[str, str], tmp_path: Path) -> None:
    mine = {
        "schema.registry.ssl.certificate.location": written(tmp_path, "client.pem", certificates.client.chain_pem),
        "schema.registry.ssl.key.location": written(tmp_path, "key.pem", certificates.client.encrypted_key_pem(SECRET)),
        "schema.registry.ssl.key.password": SECRET,
    }
    context = server_context(certificates.server, tmp_path, clients=certificates.authority)
    with StandIn(context) as registry:
        with client(registry.url, {**authority, **mine}) as ours:
            ours.register("s", SCHEMA)
        error = refused(registry.url, authority)
        wrong = refused(registry.url, {**authority, **mine, "schema.registry.ssl.key.password": f"not {SECRET}"})

    assert "schema.registry.ssl.certificate.location and schema.registry.ssl.key.location" in error.message
    assert wrong.message.startswith("option schema.registry.ssl.key.location: ")
    assert "Check schema.registry.ssl.key.password" in wrong.message


def test_tls_to_a_port_without_it(stand_in: StandIn) -> None:
    error = refused(stand_in.url.replace("http:", "https:"), {})

    assert "does not use TLS at this port. Use http:// or another port" in error.message


def test_old_tls_is_not_used(certificates: Certificates, authority: dict[str, str], tmp_path: Path) -> None:
    context = server_context(certificates.server, tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with StandIn(context) as registry:
        error = refused(registry.url, {**authority, "schema.registry.ssl.enabled.protocols": "TLSv1.3"})

    assert "failed in the TLS handshake" in error.message


# Proxies


def test_a_proxy_with_a_login(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment's proxy nor its exceptions count then. The proxy may repeat the login."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "registry.example")
    options = {"schema.registry.proxy": f"http://me:hunter%32@localhost:{stand_in.port}", USER_INFO: "alice:secret"}
    with client("http://registry.example/api", options) as registry:
        stand_in.fail(Answer(body={"id": 3}), Answer(407, {"message": "not hunter2 = 68756e7465723274"}))
        assert registry.register("s", SCHEMA).schema_id == 3
    error = refused("http://registry.example/api", options)

    first = stand_in.requests[0]
    assert first.path == "http://registry.example/api/subjects/s/versions?normalize=false"
    assert first.headers["Host"] == "registry.example"
    assert first.headers["Proxy-Authorization"] == basic("me", "hunter2")
    assert first.headers["Authorization"] == basic("alice", "secret")
    assert "returned HTTP 407. The proxy requires a login" in error.message


def test_the_proxy_of_the_environment(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", stand_in.url)
    with client("http://registry.example", {}) as registry:
        registry.register("s", SCHEMA)

    assert stand_in.requests[0].path == "http://registry.example/subjects/s/versions?normalize=false"


def test_https_goes_through_a_tunnel(certificates: Certificates, authority: dict[str, str], tmp_path: Path) -> None:
    heads = list[bytes]()
    options = {**authority, USER_INFO: "alice:secret"}
    with StandIn(server_context(certificates.server, tmp_path)) as registry, raw_server(tunnel(heads, registry.port)) as proxy:
        options["schema.registry.proxy"] = proxy.removesuffix("/token").replace("//", "//me:hunter2@")
        with client(registry.url, options) as ours:
            ours.register("s", SCHEMA)

    (head,) = heads
    assert head.startswith(b"CONNECT localhost:%d " % registry.port)
    assert f"Proxy-Authorization: {basic('me', 'hunter2')}\r\n".encode() in head
    assert b"\r\nAuthorization:" not in head  # the password is for the registry only
    assert "Proxy-Authorization" not in registry.requests[0].headers
    assert logins(registry) == [basic("alice", "secret")]


@pytest.mark.fault("schema registry", "a wrong certificate, another host's, a proxy that refuses")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "Tunnel connection failed: 407: set schema.registry.proxy to",
        ),
        (b"HTTP/1.1 403 hunter2\r\n\r\n", "Tunnel connection failed: 403 (1 try)"),
    ],
)
def test_a_proxy_that_gives_no_tunnel(answer: bytes, words: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)
        while connection.recv(65536):
            pass

    with raw_server(serve) as proxy:
        url = proxy.removesuffix("/token").replace("//", "//me:hunter2@")
        error = refused("https://registry.example", {"schema.registry.proxy": url})

    assert words in error.message
