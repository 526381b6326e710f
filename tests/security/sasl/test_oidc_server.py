"""Tokens from a real OpenID Connect server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from spark_kafka_sink.options.security_config import SecurityConfig, security_config
from spark_kafka_sink.security.sasl.mechanism import open_mechanism
from spark_kafka_sink.security.sasl.oauthbearer import claims_of
from tests.kafka_security.oidc_server import AUDIENCE, LONG, SHORT, SHORT_LIFE_S, SUBJECT_OF_SHORT, OidcServer

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcServer]:
    with OidcServer(tmp_path_factory.mktemp("oidc")) as server:
        server.wait()
        yield server


def config(oidc: OidcServer, issuer: str) -> SecurityConfig:
    line = 'required clientId="writer" clientSecret="not-checked" scope="kafka" extension_logicalCluster="lkc-1";'
    return security_config(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": oidc.token_url(issuer),
            "sasl.jaas.config": f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule {line}",
        }
    )


class Client:
    """A mechanism whose token is waited for."""

    def __init__(self, settings: SecurityConfig) -> None:
        self._woken = threading.Semaphore(0)
        self._mechanism = open_mechanism(settings, self._woken.release)

    def login(self) -> tuple[str, str]:
        """Returns the first message of a login, and its principal."""
        while (login := self._mechanism.client("broker")) is None:
            assert self._woken.acquire(timeout=30)
        message = login.evaluate(None)
        assert message is not None
        return message.decode(), login.principal()


def token_in(message: str) -> str:
    return message.removeprefix("n,,\x01auth=Bearer ").partition("\x01")[0]


@pytest.mark.whole("3 s of Java; tests/kafka_security/test_logins.py logs in with such a token at real Kafka")
def test_client_credentials_become_a_signed_token(oidc: OidcServer) -> None:
    message, principal = Client(config(oidc, LONG)).login()
    claims = claims_of(token_in(message))

    assert message.endswith("\x01logicalCluster=lkc-1\x01\x01")
    assert principal == "writer"
    assert claims is not None
    assert (claims["sub"], claims["aud"], claims["iss"]) == ("writer", AUDIENCE, f"{oidc.url}/{LONG}")


@pytest.mark.whole("waits until a token of 5 s is renewed")
def test_a_token_is_renewed_before_it_expires(oidc: OidcServer) -> None:
    client = Client(config(oidc, SHORT))
    first, principal = client.login()
    asked_s = time.time()
    while (second := client.login()[0]) == first:
        claims = claims_of(token_in(second))
        assert claims is not None
        assert asked_s < claims["exp"]  # a dead token is never used
        asked_s = time.time()
        time.sleep(0.05)

    assert principal == SUBJECT_OF_SHORT
    renewed, before = claims_of(token_in(second)), claims_of(token_in(first))
    assert renewed is not None
    assert before is not None
    # Renewed at 80 to 85 % of its life. The claims are whole seconds.
    assert SHORT_LIFE_S * 0.8 - 1 <= renewed["iat"] - before["iat"] <= SHORT_LIFE_S
