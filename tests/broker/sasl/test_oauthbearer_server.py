"""OAUTHBEARER from the server's side: messages, refusals in two steps, and how long a login is valid."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.client_settings import token
from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.sasl.oauthbearer_server import OAuthBearerSaslServer
from spark_kafka_sink.broker.sasl.sasl_server import SaslAuthenticationError, SaslError
from spark_kafka_sink.broker.sasl.sasl_server_authenticator import SaslServerAuthenticator, SaslState, sasl_servers
from spark_kafka_sink.broker.sasl.token_validator import TokenValidator, token_validator
from tests.every import every

CONFIG = BrokerConfig(sasl_mechanisms=("OAUTHBEARER",), oauthbearer_key="secret")
REFUSED = b'{"status":"invalid_token"}'


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def validator() -> TokenValidator:
    made = token_validator(CONFIG, wall_ms)
    assert made is not None
    return made


def message(text: str, *, authzid: str = "", extensions: str = "") -> bytes:
    return f"n,{authzid and 'a=' + authzid},\x01auth=Bearer {text}\x01{extensions}\x01".encode()


def test_a_token() -> None:
    server = OAuthBearerSaslServer(validator())

    assert server.evaluate_response(message(token(CONFIG, "ana"))) == b""
    assert server.authorization_id == "ana"
    assert server.expires_ms is not None
    assert 3_590_000 < server.expires_ms - wall_ms() <= 3_600_000


def test_extensions_are_accepted_and_the_scheme_has_no_case() -> None:
    server = OAuthBearerSaslServer(validator())
    sent = message(token(CONFIG, "ana"), authzid="ana", extensions="logicalCluster=lkc-1\x01identityPoolId=pool-2\x01")

    assert server.evaluate_response(sent.replace(b"Bearer", b"bEARER")) == b""
    assert server.authorization_id == "ana"


def test_a_refusal_is_heard_before_the_login_fails() -> None:
    server = OAuthBearerSaslServer(validator())

    assert server.evaluate_response(message(token(CONFIG, "ana", -100))) == REFUSED
    assert server.authorization_id is None
    with pytest.raises(SaslAuthenticationError, match="invalid_token"):
        server.evaluate_response(b"\x01")


def test_nothing_was_refused_that_could_be_heard() -> None:
    with pytest.raises(SaslError, match="client first message"):
        OAuthBearerSaslServer(validator()).evaluate_response(b"\x01")


@every(
    "sent, words",
    [
        (b"", "client first message"),
        (b"n,,\x01\x01", "'auth' not specified"),
        (b"n,,\x01auth=Basic abc\x01\x01", "Invalid scheme"),
        (b"n,,\x01auth=Bearer\x01\x01", "invalid 'auth' format"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "invalid 'auth' format"),
        (b"n,,\x01auth=Bearer abc\x01", "client first message"),
        (b"p=tls,,\x01auth=Bearer abc\x01\x01", "client first message"),
    ],
)
def test_what_is_no_message(sent: bytes, words: str) -> None:
    with pytest.raises(SaslError, match=words):
        OAuthBearerSaslServer(validator()).evaluate_response(sent)


def test_nobody_acts_for_another() -> None:
    with pytest.raises(SaslAuthenticationError, match=r"authorization id \(bob\)"):
        OAuthBearerSaslServer(validator()).evaluate_response(message(token(CONFIG, "ana"), authzid="bob"))


@given(st.binary() | st.lists(st.sampled_from([b"n,", b",", b"\x01", b"auth=", b"Bearer ", b"a=x", b"a.b.c"])).map(b"".join))
def test_no_bytes_make_it_fail_otherwise(sent: bytes) -> None:
    server = OAuthBearerSaslServer(validator())
    try:
        assert server.evaluate_response(sent) == REFUSED
    except SaslError:
        pass
    assert server.authorization_id is None


def login(max_reauth_ms: int = 0) -> SaslServerAuthenticator:
    servers = sasl_servers(["OAUTHBEARER"], Credentials({}), validator())
    made = SaslServerAuthenticator(servers, max_reauth_ms, wall_ms)
    made.handshake("OAUTHBEARER", 0)
    return made


@pytest.mark.parametrize(("max_reauth_ms", "valid_s", "bound_s"), [(0, 60, 60), (5_000, 60, 5), (90_000, 60, 60), (0, -10, 0)])
def test_a_login_is_valid_no_longer_than_its_token(max_reauth_ms: int, valid_s: float, bound_s: float) -> None:
    made = login(max_reauth_ms)
    made.authenticate(message(token(CONFIG, "ana", valid_s)), 0)

    assert made.is_complete()
    assert bound_s * 1000 - 3_000 <= made.session_lifetime_ms() <= bound_s * 1000
    assert made.may_reauthenticate(0)


def test_a_refused_token_is_told_to_the_client_twice() -> None:
    made = login()

    assert made.authenticate(message("a.b.c"), 0) == REFUSED
    assert not made.is_complete()
    with pytest.raises(ApiException, match="invalid_token"):
        made.authenticate(b"\x01", 0)
    assert made.state is SaslState.FAILED
