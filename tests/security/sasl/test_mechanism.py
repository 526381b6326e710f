"""Mechanisms as options name them, up to the first message."""

from __future__ import annotations

import base64
import gc
import math
import queue
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.sasl_server import ScramSaslServer
from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.security_config import SecurityConfig, security_config
from spark_kafka_sink.security.sasl.mechanism import SaslMechanism, open_mechanism
from spark_kafka_sink.security.sasl.oauthbearer import claims_of, unsigned_jwt
from spark_kafka_sink.security.sasl.token_cache import Token
from spark_kafka_sink.security.sasl.token_sources import refresh_of, token_from
from tests.every import every
from tests.security.sasl import tokens_for_tests
from tests.security.sasl.http_servers import Answer, http_server
from tests.waiting import wait_until

PROVIDERS = "tests.security.sasl.tokens_for_tests"
KAFKA = "org.apache.kafka.common.security"


class Client:
    """A mechanism, and the wait for its token."""

    def __init__(self, **settings: object) -> None:
        woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._woken = woken
        self.mechanism: SaslMechanism = open_mechanism(config(**settings), lambda: woken.put(None))

    def first(self, host: str = "broker") -> str:
        """Returns the first message of a login; waits for a token as a client's thread does."""
        login = self.mechanism.client(host)
        if login is None:
            self._woken.get(timeout=30)
            login = self.mechanism.client(host)
        assert login is not None
        message = login.evaluate(None)
        assert message is not None
        return message.decode()


def config(**settings: object) -> SecurityConfig:
    """Options by their names, with `_` for dots."""
    protocol = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    return security_config({**protocol, **{name.replace("_", "."): value for name, value in settings.items()}})


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kafka-sink-tokens"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Not of another file's test either, whose thread may end only now."""

    def end() -> None:
        if threads():
            wait_until(lambda: gc.collect() >= 0 and not threads(), "no thread is left")

    end()
    yield
    end()


# Passwords


def test_plain() -> None:
    client = Client(sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="pass-word")

    assert (client.mechanism.name, client.first()) == ("PLAIN", "\0alice\0pass-word")


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("package", [KAFKA, f"kafkashaded.{KAFKA}"])
def test_scram_with_a_login_line(name: str, package: str) -> None:
    line = f'{package}.scram.ScramLoginModule required username="alice" password="a\\"b\\\\c";'
    mechanism = open_mechanism(config(sasl_mechanism=name, sasl_jaas_config=line), lambda: None)
    server, client = ScramSaslServer(name, Credentials({"alice": 'a"b\\c'})), mechanism.client("broker")
    assert client is not None
    message: bytes | None = None
    while (message := client.evaluate(None if message is None else server.evaluate_response(message))) is not None:
        pass

    assert (client.is_complete(), mechanism.name, client.principal()) == (True, name, "alice")


@pytest.mark.parametrize(("said", "is_token"), [("true", True), ("TRUE", True), ("false", False)])
def test_a_delegation_token_logs_in_with_scram(said: str, is_token: bool) -> None:
    line = f'{KAFKA}.scram.ScramLoginModule required username="id" password="hmac" tokenauth="{said}";'
    client = Client(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=line)

    assert client.first().endswith(",tokenauth=true") is is_token


def test_a_password_in_a_file_is_read_again_for_each_login(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("old\n")
    reference = f"${{directory:{tmp_path}:password}}"
    client = Client(sasl_mechanism="PLAIN", sasl_username="alice", sasl_password=reference)
    first = client.first()
    (tmp_path / "password").write_text("new${env:HOME}\n")
    assert (first, client.first()) == ("\0alice\0old", "\0alice\0new${env:HOME}")
    (tmp_path / "password").unlink()
    with pytest.raises(AuthenticationError, match="is not a file"):
        client.first()


def test_a_reference_that_cannot_be_read_is_an_error_at_the_start() -> None:
    settings = config(sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="${env:NO_SUCH_VARIABLE_HERE}")
    with pytest.raises(OptionError, match="environment variable NO_SUCH_VARIABLE_HERE is not set"):
        open_mechanism(settings, lambda: None)


# Tokens


def test_a_static_token() -> None:
    assert Client(sasl_oauthbearer_token="opaque-token").first() == "n,,\x01auth=Bearer opaque-token\x01\x01"
    assert threads() == []


def test_a_static_token_that_has_expired() -> None:
    expired = unsigned_jwt({"sub": "alice", "exp": 17})
    with pytest.raises(AuthenticationError, match="has expired and is not renewed"):
        Client(sasl_oauthbearer_token=expired).first()


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_oauthbearer_extensions": "logicalCluster=lkc-1, identityPoolId=pool-1"},
        {
            "sasl_jaas_config": f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required"
            ' extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1";'
        },
    ],
)
def test_extensions(settings: dict[str, str]) -> None:
    first = Client(sasl_oauthbearer_token="t", **settings).first()

    assert first == "n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01identityPoolId=pool-1\x01\x01"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("auth=x", "'auth' is reserved"),
        ("a-b=x", "'a-b' is not a valid"),
        ("nothing", "must be a comma-separated list of name=value"),
        ("a=", "is empty"),
    ],
)
def test_wrong_extensions(value: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Client(sasl_oauthbearer_token="t", sasl_oauthbearer_extensions=value)


def test_a_file_url(tmp_path: Path) -> None:
    (tmp_path / "a token").write_text("from-file\n")
    client = Client(sasl_oauthbearer_token_endpoint_url=f"file://{tmp_path}/a%20token")

    assert client.first() == "n,,\x01auth=Bearer from-file\x01\x01"


def test_a_file_url_of_another_host_is_refused() -> None:
    with pytest.raises(OptionError, match="a file URL must be file:///path"):
        Client(sasl_oauthbearer_token_endpoint_url="file://host/token")


OIDC_OPTIONS = [
    {
        "sasl_oauthbearer_client_credentials_client_id": "id",
        "sasl_oauthbearer_client_credentials_client_secret": "secret",
        "sasl_oauthbearer_scope": "write",
    },
    {"sasl_oauthbearer_client_id": "id", "sasl_oauthbearer_client_secret": "secret", "sasl_oauthbearer_scope": "write"},
    {
        "sasl_jaas_config": f"kafkashaded.{KAFKA}.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="id" clientSecret="secret" scope="write";'
    },
    {"sasl_jaas_config": "${env:TEST_LOGIN_LINE}"},
]


@pytest.mark.parametrize("options", OIDC_OPTIONS)
def test_client_credentials_by_every_name(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    line = f'{KAFKA}.oauthbearer.OAuthBearerLoginModule required clientId="id" clientSecret="secret" scope="write";'
    monkeypatch.setenv("TEST_LOGIN_LINE", line)
    with http_server(Answer(200, b'{"access_token": "from-oidc", "expires_in": 3600}')) as server:
        client = Client(sasl_oauthbearer_token_endpoint_url=server.url, **options)
        assert server.requests == []
        assert client.first() == "n,,\x01auth=Bearer from-oidc\x01\x01"

    (request,) = server.requests
    assert request.headers["Authorization"] == "Basic aWQ6c2VjcmV0"
    assert request.body == b"grant_type=client_credentials&scope=write"


def test_a_client_id_that_changes_with_its_secret_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"sasl_oauthbearer_client_id": "${env:TEST_ID}", "sasl_oauthbearer_client_secret": "${env:TEST_SECRET}"}
    with http_server(Answer(200, b'{"access_token": "from-oidc", "expires_in": 3600}')) as server:
        monkeypatch.setenv("TEST_ID", "old")
        monkeypatch.setenv("TEST_SECRET", "older")
        client = Client(sasl_oauthbearer_token_endpoint_url=server.url, **options)
        client.first()
        monkeypatch.setenv("TEST_ID", "new")
        monkeypatch.setenv("TEST_SECRET", "newer")
        login = client.mechanism.client("broker")
        assert login is not None
        login.evaluate(None)
        login.evaluate(b'{"status": "invalid_token"}')
        client.first()

    logins = [base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")) for request in server.requests]
    assert logins == [b"old:older", b"new:newer"]


def test_what_a_reference_yields_is_not_looked_at_for_more_references(monkeypatch: pytest.MonkeyPatch) -> None:
    options = 'clientId="${env:TEST_ID}" clientSecret="x" scope="${env:TEST_ID}"'
    line = f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required {options};"
    monkeypatch.setenv("TEST_LOGIN_LINE", line)
    monkeypatch.setenv("TEST_ID", "of another option")
    with http_server(Answer(200, b'{"access_token": "from-oidc", "expires_in": 3600}')) as server:
        Client(sasl_oauthbearer_token_endpoint_url=server.url, sasl_jaas_config="${env:TEST_LOGIN_LINE}").first()

    (request,) = server.requests
    assert base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")) == b"${env:TEST_ID}:x"
    assert request.body == b"grant_type=client_credentials&scope=%24%7Benv%3ATEST_ID%7D"


def test_a_reference_that_yields_no_file_of_authorities_never_means_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUTHORITIES", "")
    with pytest.raises(OptionError, match="ca\\.location: its reference resolves to an empty value"):
        Client(
            sasl_oauthbearer_token_endpoint_url="https://localhost:1/token",
            sasl_oauthbearer_ca_location="${env:TEST_AUTHORITIES}",
            **OIDC_OPTIONS[0],
        )


def test_a_reference_that_yields_an_endpoint_without_tls_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TEST_ENDPOINT", "http://localhost:1/token")
    Client(sasl_oauthbearer_token_endpoint_url="${env:TEST_ENDPOINT}", **OIDC_OPTIONS[0])
    assert [each.getMessage() for each in caplog.records if "the client secret is sent unencrypted" in each.getMessage()]


def test_producers_with_equal_settings_share_a_token_and_others_do_not() -> None:
    with http_server(Answer(200, b'{"access_token": "from-oidc", "expires_in": 3600}')) as server:
        options = OIDC_OPTIONS[0] | {"sasl_oauthbearer_token_endpoint_url": server.url}
        clients = [Client(**options, ssl_ca_location=ca) for ca in ("/ca-1", "/ca-2", "/ca-1")]
        for client in clients:
            client.first()
            client.first("another-broker")
        assert len(server.requests) == 1
        other = Client(**{**options, "sasl_oauthbearer_scope": "read"})
        other.first()

    assert [request.body.rpartition(b"=")[2] for request in server.requests] == [b"write", b"read"]
    assert len(threads()) == 2


UNSECURED = (
    f'{KAFKA}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice"'
    ' unsecuredLoginExtension_traceId="123";'
)


def test_the_unsecured_login_of_java() -> None:
    before = int(time.time())
    first = Client(sasl_jaas_config=UNSECURED).first()
    token = first.removeprefix("n,,\x01auth=Bearer ").partition("\x01")[0]
    claims = claims_of(token)

    assert first.endswith("\x01traceId=123\x01\x01")
    assert token.startswith("eyJhbGciOiJub25lIn0.")  # {"alg":"none"}
    assert token.endswith(".")
    assert claims is not None
    assert claims["sub"] == "alice"
    assert claims["exp"] - claims["iat"] == 3600
    assert before <= claims["iat"] <= time.time()


@every(
    "option",
    [
        'unsecuredLoginStringClaim_name="x"',
        'unsecuredLoginStringClaim_sub=""',
        'unsecuredLoginStringClaim_sub="x" unsecuredLoginNumberClaim_n="1"',
    ],
)
def test_a_wrong_unsecured_login(option: str) -> None:
    with pytest.raises(OptionError, match="takes unsecuredLoginStringClaim_sub and nothing else"):
        Client(sasl_jaas_config=f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required {option};")


def test_no_token_at_all() -> None:
    with pytest.raises(OptionError, match=r"OAUTHBEARER requires a token: set sasl\.oauthbearer\.token, "):
        Client(sasl_jaas_config=f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required;")


# Python callables


@pytest.mark.parametrize("name", [f"{PROVIDERS}.pair", f"{PROVIDERS}:pair"])
def test_a_provider_by_its_dotted_name_is_told_each_host_once(name: str) -> None:
    tokens_for_tests.asked.clear()
    client = Client(sasl_oauthbearer_token_provider=name)
    messages = [client.first(host) for host in ("one", "two", "one")]

    assert messages == [f"n,,\x01auth=Bearer token-for-{host}\x01\x01" for host in ("one", "two", "one")]
    assert tokens_for_tests.asked == ["one", "two"]


def test_a_callable_itself() -> None:
    client = Client(sasl_oauthbearer_token_provider=tokens_for_tests.whole)

    assert client.first("host") == "n,,\x01auth=Bearer whole-token\x01pool=host\x01\x01"


def test_what_a_callable_raises_is_the_error_of_the_login() -> None:
    def broken(host: str) -> str:
        raise LookupError(f"no vault for {host}")

    with pytest.raises(AuthenticationError, match="no token: LookupError: no vault for broker"):
        Client(sasl_oauthbearer_token_provider=broken).first()


class Vault:
    """A callable that is equal to all of its kind, and has no hash."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, host: str) -> tuple[str, float]:
        return self._token, math.inf if host == "never" else 4_000_000_000

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vault)

    __hash__ = None  # type: ignore[assignment]


def test_two_callables_never_share_a_token() -> None:
    one, two = (Client(sasl_oauthbearer_token_provider=Vault(token)) for token in ("one", "two"))

    assert [one.first(), two.first()] == ["n,,\x01auth=Bearer one\x01\x01", "n,,\x01auth=Bearer two\x01\x01"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nodots", "nodots is neither one of azure, google, aws nor a dotted name"),
        ("no.such.module", r"module no\.such cannot be imported: ModuleNotFoundError"),
        (f"{PROVIDERS}.missing", "has no missing"),
        (f"{PROVIDERS}.NOT_CALLABLE", "is not callable"),
    ],
)
def test_a_provider_that_is_none(name: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as wrong:
        Client(sasl_oauthbearer_token_provider=name)

    assert wrong.value.facts["option"] == "sasl.oauthbearer.token.provider"


def test_what_a_provider_may_return() -> None:
    signed = unsigned_jwt({"sub": "alice", "exp": 4_000_000_000, "azp": "app"})
    whole = Token(Secret("t"), 17.0)

    assert token_from(whole, "p") is whole
    assert token_from(signed, "p") == Token(Secret(signed), 4_000_000_000, "alice")
    assert token_from((signed, 17), "p", "azp") == Token(Secret(signed), 17.0, "app")
    assert token_from(("opaque", 17.5), "p") == Token(Secret("opaque"), 17.5)
    assert token_from((Secret("opaque"), 17.5), "p") == Token(Secret("opaque"), 17.5)


@every(
    "result, words",
    [
        (None, "the token provider p returned NoneType; it must return a JWT, or a pair of a token"),
        (b"bytes", "the token provider p returned bytes"),
        (("t", 1, {}), "the token provider p returned tuple"),
        ((17, "t"), "the token provider p returned tuple"),
        ("opaque-needle", "returned a token without an expiry"),
        (("needle", "soon"), "returned an expiry that is not a number of seconds"),
        (("needle", math.nan), "returned an expiry that is not a number of seconds"),
        (("needle", True), "returned an expiry that is not a number of seconds"),
    ],
)
def test_what_a_provider_may_not_return(result: object, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words) as wrong:
        token_from(result, "p")

    assert "needle" not in str(wrong.value)


# The rest


@pytest.mark.parametrize(
    ("name", "module", "made"),
    [("GSSAPI", "gssapi_client", "GssapiMechanism"), ("AWS_MSK_IAM", "aws_msk_iam", "AwsMskIamMechanism")],
)
def test_mechanisms_that_need_packages_are_imported_when_they_are_named(
    name: str, module: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[tuple[SecurityConfig, Callable[[], None]]]()
    stand_in = types.ModuleType(module)
    vars(stand_in)[made] = lambda *arguments: given.append(arguments)
    monkeypatch.setitem(sys.modules, f"spark_kafka_sink.security.sasl.{module}", stand_in)
    asked, woken = config(sasl_mechanism=name), threading.Event()
    open_mechanism(asked, woken.set)

    assert given == [(asked, woken.set)]


@pytest.mark.parametrize("name", ["azure", "Google", "aws"])
def test_a_cloud_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def token_provider(cloud: str, _: SecurityConfig) -> Callable[[str], Token]:
        return lambda host: Token(Secret(f"{cloud}-{host}"), 4_000_000_000)

    stand_in = types.ModuleType("cloud_tokens")
    vars(stand_in)["token_provider"] = token_provider
    monkeypatch.setitem(sys.modules, "spark_kafka_sink.security.sasl.cloud_tokens", stand_in)
    client = Client(sasl_oauthbearer_token_provider=name)
    messages = [client.first(host).split("Bearer ")[1].rstrip("\x01") for host in ("one", "two")]

    # Only a token of Azure is for one host.
    second = "two" if name == "azure" else "one"
    assert messages == [f"{name.lower()}-one", f"{name.lower()}-{second}"]


def test_a_mechanism_that_is_none() -> None:
    with pytest.raises(OptionError, match=r"option sasl\.mechanism: 'DIGEST-MD5' is not supported, must be one of PLAIN, "):
        open_mechanism(SecurityConfig(sasl_mechanism="DIGEST-MD5"), lambda: None)


def test_when_tokens_are_renewed_is_an_option() -> None:
    given = refresh_of(
        config(
            sasl_oauthbearer_token="t",
            sasl_login_refresh_window_factor="0.5",
            sasl_login_refresh_window_jitter="0.1",
            sasl_login_refresh_min_period_seconds="7",
            sasl_login_refresh_buffer_seconds="8",
        )
    )

    assert (given.window_factor, given.window_jitter, given.min_period_s, given.buffer_s) == (0.5, 0.1, 7, 8)
