"""How far a login has come, what may be asked meanwhile, and when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.sasl_server import Admission, SaslServerAuthenticator, SaslState, sasl_servers
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.sasl.scram_client import ScramClient

CREDENTIALS = Credentials({"alice": "secret-word", "bob": "other-word"})
ALICE = b"\0alice\0secret-word"


def authenticator(max_reauth_ms: int = 0) -> SaslServerAuthenticator:
    return SaslServerAuthenticator(sasl_servers(BrokerConfig().sasl_mechanisms, CREDENTIALS), max_reauth_ms)


def logged_in(max_reauth_ms: int = 0, now_ms: float = 0) -> SaslServerAuthenticator:
    made = authenticator(max_reauth_ms)
    made.handshake("PLAIN", now_ms)
    made.authenticate(ALICE, now_ms)
    return made


def refused(what: Callable[[], object]) -> tuple[ErrorCode, str | None]:
    with pytest.raises(ApiException) as error:
        what()
    return error.value.code, error.value.message


def admitted(login: SaslServerAuthenticator, now_ms: float = 0) -> dict[Admission, set[ApiKey]]:
    keys = ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA
    return {admission: {key for key in keys if login.admission(key, now_ms) is admission} for admission in Admission}


def test_a_mechanism_that_the_broker_does_not_have_is_an_error() -> None:
    with pytest.raises(OptionError, match="OAUTHBEARER is not supported; use one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        BrokerConfig(sasl_mechanisms=("OAUTHBEARER",))


def test_before_a_handshake_all_else_closes_the_connection() -> None:
    found = admitted(authenticator())

    assert found[Admission.SERVE] == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    assert found[Admission.ILLEGAL_STATE] == set()


def test_after_a_handshake_all_but_the_login_is_told_that_it_is_illegal() -> None:
    login = authenticator()
    login.handshake("SCRAM-SHA-512", 0)

    assert admitted(login)[Admission.SERVE] == {ApiKey.SASL_AUTHENTICATE}
    assert admitted(login)[Admission.CLOSE] == set()


def test_after_a_login_all_is_served() -> None:
    login = logged_in()

    assert len(admitted(login, now_ms=1e12)[Admission.SERVE]) == 4
    assert (login.user, login.is_complete(), login.session_lifetime_ms()) == ("alice", True, 0)


def test_after_a_failed_one_nothing_is() -> None:
    login = authenticator()
    login.handshake("PLAIN", 0)
    refused(lambda: login.authenticate(b"\0alice\0wrong", 0))

    assert len(admitted(login)[Admission.CLOSE]) == 4
    assert (login.user, login.state) == (None, SaslState.FAILED)


def test_a_mechanism_that_is_not_there() -> None:
    login = SaslServerAuthenticator(sasl_servers(["PLAIN"], CREDENTIALS))

    assert refused(lambda: login.handshake("SCRAM-SHA-256", 0))[0] is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert len(admitted(login)[Admission.CLOSE]) == 4


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_says_the_same_of_a_wrong_user_and_a_wrong_password(mechanism: str) -> None:
    said = []
    for user in ("alice", "carol"):
        login = authenticator()
        login.handshake(mechanism, 0)
        client = ScramClient(user, "wrong", hash_name=mechanism[6:].replace("-", "").lower())

        def exchange(login: SaslServerAuthenticator = login, client: ScramClient = client) -> None:
            login.authenticate(client.final(login.authenticate(client.first(), 0)), 0)

        said.append(refused(exchange))

    words = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert said == [(ErrorCode.SASL_AUTHENTICATION_FAILED, words)] * 2


def test_no_password_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logged_in()
        login = authenticator()
        login.handshake("SCRAM-SHA-256", 0)
        refused(lambda: login.authenticate(ALICE, 0))  # a password that went to the wrong mechanism

    assert "Invalid SCRAM client first message format" in caplog.text
    assert "word" not in caplog.text


class TestReauthentication:
    def test_a_login_ends_and_then_only_another_one_is_served(self) -> None:
        login = logged_in(max_reauth_ms=60_000, now_ms=5)

        assert login.session_lifetime_ms() == 60_000
        assert len(admitted(login, now_ms=60_005)[Admission.SERVE]) == 4
        assert admitted(login, now_ms=60_005.5)[Admission.SERVE] == {ApiKey.SASL_HANDSHAKE}

    def test_another_login_counts_from_its_end(self) -> None:
        login = logged_in(max_reauth_ms=60_000)
        assert login.may_reauthenticate(70_000)
        login.handshake("PLAIN", 70_000)
        assert admitted(login, 70_000)[Admission.SERVE] == {ApiKey.SASL_AUTHENTICATE}
        login.authenticate(ALICE, 80_000)

        assert len(admitted(login, 140_000)[Admission.SERVE]) == 4
        assert ApiKey.METADATA in admitted(login, 140_001)[Admission.CLOSE]

    def test_it_may_begin_once_a_second(self) -> None:
        login = logged_in(max_reauth_ms=60_000)
        login.handshake("PLAIN", 10)
        login.authenticate(ALICE, 10)

        assert [login.may_reauthenticate(now_ms) for now_ms in (11, 1009, 1010)] == [False, False, True]

    def test_a_login_without_end_is_the_only_one(self) -> None:
        assert not logged_in().may_reauthenticate(1e9)

    def test_nobody_becomes_another(self) -> None:
        login = logged_in(max_reauth_ms=60_000)
        login.handshake("PLAIN", 0)

        assert refused(lambda: login.authenticate(b"\0bob\0other-word", 0)) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
        assert len(admitted(login)[Admission.CLOSE]) == 4

    def test_another_mechanism_ends_with_the_next_request(self) -> None:
        login = logged_in(max_reauth_ms=60_000)
        login.handshake("SCRAM-SHA-256", 0)

        assert login.state is SaslState.BAD_MECHANISM
        assert len(admitted(login)[Admission.CLOSE]) == 4

    def test_a_failed_one_says_that_it_was_another(self) -> None:
        login = authenticator(60_000)
        client = ScramClient("alice", "secret-word")
        login.handshake("SCRAM-SHA-256", 0)
        login.authenticate(client.final(login.authenticate(client.first(), 0)), 0)
        login.handshake("SCRAM-SHA-256", 0)

        assert "during re-authentication due to invalid credentials" in str(refused(lambda: login.authenticate(b"", 0))[1])
