"""Logins through KafkaApis: what is answered, when the connection is closed, and who the client is afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.network.listener import Listener, SecurityProtocol
from spark_kafka_sink.broker.network.request import ResponseAction, Session
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.requests import Responses, request
from tests.broker.rig import Rig
from tests.broker.sasl.scram_client import ScramClient

USERS = {"alice": "secret-word", "bob": "other-word"}
SASL = Listener(security_protocol=SecurityProtocol.SASL_PLAINTEXT)
RIGHT = b"\0alice\0secret-word"
WRONG = b"\0alice\0wrong"


class Connection:
    """One client's requests, in their order; `last` is what became of the newest."""

    def __init__(self, rig: Rig, listener: Listener = SASL) -> None:
        self._apis = KafkaApis(rig.services())
        self._timer = rig.timer
        self._listener = listener
        self.session = Session("127.0.0.1", 1)

    def ask(self, body: Message, key: ApiKey, version: int | None = None) -> None:
        self.last = Responses()
        self._apis.handle(request(body, key, version, responses=self.last, session=self.session, listener=self._listener))

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        self.ask(SaslHandshakeRequest(mechanism), ApiKey.SASL_HANDSHAKE, version)
        return self.answer()

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        self.ask(SaslAuthenticateRequest(token), ApiKey.SASL_AUTHENTICATE, version)
        return self.answer()

    def answer(self) -> Any:
        """None where there is none yet."""
        return self.last.answer() if self.last.answers() else None

    def metadata(self) -> None:
        self.ask(MetadataRequest(topics=()), ApiKey.METADATA)

    @property
    def is_closed(self) -> bool:
        """Whether the newest answer, or none, was the last of the connection."""
        (response,) = self.last.sent
        return response.action is ResponseAction.CLOSE_CONNECTION or response.announced is not None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_by_plain(version: int) -> None:
    with Rig(sasl_users=USERS) as rig:
        client = Connection(rig)
        assert client.handshake("PLAIN").error_code == ErrorCode.NONE
        answer = client.authenticate(RIGHT, version)

        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (ErrorCode.NONE, b"", 0)
        assert (client.session.principal, client.session.is_authenticated) == ("User:alice", True)
        client.metadata()
        assert not client.is_closed


@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
def test_a_login_by_scram(hash_name: str) -> None:
    with Rig(sasl_users=USERS) as rig:
        client, scram = Connection(rig), ScramClient("bob", "other-word", hash_name=hash_name)
        client.handshake(f"SCRAM-SHA-{hash_name[3:]}")
        first = client.authenticate(scram.first()).auth_bytes
        assert not client.session.is_authenticated
        last = client.authenticate(scram.final(first)).auth_bytes

        assert last == scram.server_signature()
        assert (client.session.principal, client.session.is_authenticated) == ("User:bob", True)


def test_a_wrong_password_is_answered_after_a_while_and_that_is_the_end() -> None:
    with Rig(sasl_users=USERS) as rig:
        client = Connection(rig)
        client.handshake("PLAIN")
        assert client.authenticate(WRONG) is None
        rig.timer.advance(99)
        assert client.answer() is None
        rig.timer.advance(1)

        assert (client.answer().error_code, client.answer().error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed: Invalid username or password",
        )
        assert client.is_closed
        assert not client.session.is_authenticated
        client.handshake("PLAIN")
        assert client.is_closed


def test_a_mechanism_that_is_not_there_is_told_those_that_are() -> None:
    with Rig(sasl_users=USERS, sasl_mechanisms=("PLAIN", "SCRAM-SHA-512")) as rig:
        client = Connection(rig)
        client.handshake("SCRAM-SHA-256")
        rig.timer.advance(100)

        assert (client.answer().error_code, tuple(client.answer().mechanisms)) == (
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            ("PLAIN", "SCRAM-SHA-512"),
        )
        assert client.is_closed


def test_versions_may_be_asked_for_first() -> None:
    with Rig(sasl_users=USERS) as rig:
        client = Connection(rig)
        client.ask(ApiVersionsRequest("test", "1"), ApiKey.API_VERSIONS)

        assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= {api.api_key for api in client.answer().api_keys}
        assert client.handshake("PLAIN").error_code == ErrorCode.NONE


def test_anything_else_closes_the_connection() -> None:
    with Rig(sasl_users=USERS) as rig:
        client = Connection(rig)
        client.metadata()
        assert client.is_closed
        client = Connection(rig)
        client.authenticate(RIGHT)
        assert client.is_closed


def test_in_the_middle_of_a_login_it_is_told_first_that_it_is_illegal() -> None:
    with Rig(sasl_users=USERS) as rig:
        client = Connection(rig)
        client.handshake("PLAIN")
        client.handshake("PLAIN")
        rig.timer.advance(100)

        assert client.answer().error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed


def test_after_a_login_another_is_illegal_and_the_connection_goes_on() -> None:
    with Rig(sasl_users=USERS) as rig:
        client = Connection(rig)
        client.handshake("PLAIN")
        client.authenticate(RIGHT)

        assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.authenticate(RIGHT).error_code == ErrorCode.ILLEGAL_SASL_STATE
        client.metadata()
        assert not client.is_closed


def test_a_listener_without_logins_has_none() -> None:
    with Rig() as rig:
        client = Connection(rig, Listener())

        assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.authenticate(RIGHT).error_message == "SaslAuthenticate request received after successful authentication"
        client.metadata()
        assert not client.is_closed


class TestReauthentication:
    """KIP-368."""

    def test_who_does_not_log_in_again_is_closed(self) -> None:
        with Rig(sasl_users=USERS, connections_max_reauth_ms=60_000) as rig:
            client = Connection(rig)
            client.handshake("PLAIN")
            assert client.authenticate(RIGHT).session_lifetime_ms == 60_000
            rig.timer.advance(60_000)
            client.metadata()
            assert not client.is_closed
            rig.timer.advance(1)
            client.metadata()
            assert client.is_closed

    def test_who_does_goes_on(self) -> None:
        with Rig(sasl_users=USERS, connections_max_reauth_ms=60_000) as rig:
            client = Connection(rig)
            for _ in range(3):
                assert client.handshake("PLAIN").error_code == ErrorCode.NONE
                assert client.authenticate(RIGHT).session_lifetime_ms == 60_000
                rig.timer.advance(60_001)
            assert client.handshake("PLAIN").error_code == ErrorCode.NONE

    def test_nobody_becomes_another(self) -> None:
        with Rig(sasl_users=USERS, connections_max_reauth_ms=60_000) as rig:
            client = Connection(rig)
            client.handshake("PLAIN")
            client.authenticate(RIGHT)
            client.handshake("PLAIN")
            client.authenticate(b"\0bob\0other-word")
            rig.timer.advance(100)

            assert client.answer().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed
            assert client.session.principal == "User:alice"


class TestBareTokens:
    """After a SaslHandshake v0, as clients older than Kafka 1.0 send it."""

    def test_a_login(self) -> None:
        with Rig(sasl_users=USERS) as rig:
            client = Connection(rig)
            assert client.handshake("PLAIN", version=0).error_code == ErrorCode.NONE
            assert client.session.has_bare_sasl_tokens
            client.ask(SaslAuthenticateRequest(RIGHT), ApiKey.SASL_AUTHENTICATE, 0)

            assert [bytes(buffer) for buffer in client.last.sent[0].buffers] == [b""]
            assert (client.session.is_authenticated, client.session.has_bare_sasl_tokens) == (True, False)

    def test_a_wrong_password_closes_the_connection_without_a_word(self) -> None:
        with Rig(sasl_users=USERS) as rig:
            client = Connection(rig)
            client.handshake("PLAIN", version=0)
            client.ask(SaslAuthenticateRequest(WRONG), ApiKey.SASL_AUTHENTICATE, 0)
            rig.timer.advance(100)

            assert client.last.actions == [ResponseAction.CLOSE_CONNECTION]


def test_a_token_does_not_show() -> None:
    assert "secret-word" not in repr(SaslAuthenticateRequest(RIGHT))
