"""A SASL login step by step: what is sent, and what each answer of a broker leads to."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.sasl_login import MAX_MESSAGES, MAX_WORDS, BrokerAddress, LoginRequest, LoginState, SaslLogin
from spark_kafka_sink.errors import AuthenticationError, BrokerError, KafkaSinkError, ProtocolError, UsageError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.client.sasl import PASSWORD, USER, Mechanism, PlainText

BROKER = BrokerAddress("broker 1 (kafka:9093)", "kafka", 9093)
ANY_KAFKA = {int(ApiKey.SASL_HANDSHAKE): (0, 1), int(ApiKey.SASL_AUTHENTICATE): (0, 2)}


class Scripted(Mechanism):
    """A mechanism whose logins send `replies`."""

    def __init__(self, replies: Sequence[bytes | None], *, proves: bool = True) -> None:
        super().__init__("SCRAM-SHA-256")
        self.made = PlainText(replies=list(replies), proves=proves)

    def client(self, host: str) -> PlainText:
        return self.made


def login(
    mechanism: Mechanism | None = None, ranges: dict[int, tuple[int, int]] = ANY_KAFKA, protocol: str = "SASL_SSL"
) -> SaslLogin:
    return SaslLogin(mechanism or Mechanism(), BROKER, NodeApiVersions(BROKER.label, ranges), protocol)


def after_handshake(mechanism: Mechanism | None = None) -> tuple[SaslLogin, LoginRequest]:
    made = login(mechanism)
    made.begin()
    request = made.answered(SaslHandshakeResponse(0, ["PLAIN"]))
    assert request is not None
    return made, request


def failure(made: SaslLogin, answer: Message) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as raised:
        made.answered(answer)
    assert made.state is LoginState.FAILED
    return raised.value


def refused(code: int, words: str | None = None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(code, words)


def test_a_login_names_its_mechanism_sends_its_messages_and_is_complete_after_the_last_answer() -> None:
    made = login()
    first = made.begin()
    assert first is not None
    assert (first.api.key, first.version, first.body) == (ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
    second = made.answered(SaslHandshakeResponse(0, ["PLAIN"]))
    assert second is not None
    token = SaslAuthenticateRequest(f"\0{USER}\0{PASSWORD}".encode())
    assert (second.api.key, second.version, second.body) == (ApiKey.SASL_AUTHENTICATE, 2, token)
    assert not made.is_complete
    assert made.answered(SaslAuthenticateResponse()) is None
    assert made.state is LoginState.COMPLETE
    assert made.session_lifetime_ms == 0


@pytest.mark.parametrize(("theirs", "version"), [((0, 0), 0), ((0, 1), 1), ((0, 2), 2), ((0, 9), 2)])
def test_the_highest_version_of_sasl_authenticate_that_both_speak_is_used(theirs: tuple[int, int], version: int) -> None:
    made = login(ranges=ANY_KAFKA | {int(ApiKey.SASL_AUTHENTICATE): theirs})
    made.begin()
    request = made.answered(SaslHandshakeResponse())
    assert request is not None
    assert request.version == version


def test_challenges_go_to_the_mechanism_in_order_until_it_is_content() -> None:
    mechanism = Scripted([b"first", b"second", None])
    made, request = after_handshake(mechanism)
    assert request.body == SaslAuthenticateRequest(b"first")
    answer = made.answered(SaslAuthenticateResponse(auth_bytes=b"challenge"))
    assert answer is not None
    assert answer.body == SaslAuthenticateRequest(b"second")
    assert made.answered(SaslAuthenticateResponse(auth_bytes=b"proof", session_lifetime_ms=1500)) is None
    assert mechanism.made.challenges == [None, b"challenge", b"proof"]
    assert made.session_lifetime_ms == 1500


def test_a_mechanism_that_waits_for_the_server_begins_with_an_empty_message() -> None:
    _, request = after_handshake(Scripted([None, b"reply", None]))
    assert request.body == SaslAuthenticateRequest(b"")


def test_a_mechanism_that_is_complete_with_its_last_message_only_needs_the_brokers_word() -> None:
    mechanism = Scripted([b"only"])
    made, _ = after_handshake(mechanism)
    assert made.answered(SaslAuthenticateResponse(auth_bytes=b"ignored")) is None
    assert made.is_complete
    assert mechanism.made.challenges == [None]


def test_a_mechanism_that_is_not_offered_names_those_that_are() -> None:
    made = login()
    made.begin()
    error = failure(made, SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512", "GSSAPI"]))
    assert type(error) is AuthenticationError
    assert str(error) == (
        "[AUTHENTICATION] broker 1 (kafka:9093): the SASL login with PLAIN as user 'alice' failed: the broker does not offer the"
        " SASL mechanism PLAIN. It offers SCRAM-SHA-512, GSSAPI. Set sasl.mechanism to one of them."
    )
    assert error.facts == {
        "broker": "kafka:9093",
        "mechanism": "PLAIN",
        "user": "alice",
        "error_code": 33,
        "error": "UNSUPPORTED_SASL_MECHANISM",
    }


def test_names_of_mechanisms_cannot_flood_or_forge_an_error() -> None:
    made = login()
    made.begin()
    names = ["A\n[OPTION] forged", *["M" * 30_000] * 500]
    text = failure(made, SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, names)).message
    assert "\n" not in text
    assert len(text) < 1_500


@pytest.mark.parametrize(("protocol", "plain"), [("SASL_PLAINTEXT", "PLAINTEXT"), ("SASL_SSL", "SSL")])
def test_a_listener_without_sasl_says_which_protocol_to_set(protocol: str, plain: str) -> None:
    made = login(protocol=protocol)
    made.begin()
    error = failure(made, SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE))
    assert type(error) is AuthenticationError
    assert f"Set security.protocol={plain}, or use the port of a listener with SASL." in error.message


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_a_broker_that_does_not_know_sasl_says_which_protocol_to_set(key: ApiKey) -> None:
    ranges = {api: versions for api, versions in ANY_KAFKA.items() if api != key}
    with pytest.raises(AuthenticationError, match=f"does not support {key.name}.*Set security.protocol=SSL"):
        login(ranges=ranges).begin()


def test_a_broker_before_sasl_authenticate_is_not_sent_bare_tokens() -> None:
    with pytest.raises(AuthenticationError, match="SASL_HANDSHAKE v0 to v0, but this client v1 to v1"):
        login(ranges=ANY_KAFKA | {int(ApiKey.SASL_HANDSHAKE): (0, 0)}).begin()


def test_a_wrong_password_has_the_brokers_words_the_mechanism_and_the_user() -> None:
    made, _ = after_handshake(Scripted([b"proof", None]))
    error = failure(made, refused(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password"))
    assert type(error) is AuthenticationError
    assert error.message == (
        "broker 1 (kafka:9093): the SASL login with SCRAM-SHA-256 as user 'alice' failed: Authentication failed: Invalid username"
        " or password. Check the user, the password or token, and that sasl.mechanism is the one that the user was created for."
    )
    assert error.facts["error"] == "SASL_AUTHENTICATION_FAILED"
    assert pickle.loads(pickle.dumps(error)).facts == error.facts


def test_a_broker_that_gives_no_reason_is_quoted_by_the_name_of_its_error() -> None:
    made, _ = after_handshake()
    error = failure(made, refused(ErrorCode.SASL_AUTHENTICATION_FAILED))
    assert "SaslAuthenticate failed with SASL_AUTHENTICATION_FAILED." in error.message


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "AWS_MSK_IAM"])
def test_a_broker_that_was_sent_a_secret_is_not_quoted(mechanism: str) -> None:
    made, _ = after_handshake(Mechanism(mechanism))
    error = failure(made, refused(ErrorCode.SASL_AUTHENTICATION_FAILED, f"you sent {PASSWORD.encode().hex()}"))
    assert "SaslAuthenticate failed with SASL_AUTHENTICATION_FAILED." in error.message
    assert "you sent" not in str(error) + repr(error.facts)


def test_of_the_answer_to_a_token_only_the_status_is_quoted() -> None:
    made, _ = after_handshake(Mechanism("OAUTHBEARER"))
    error = failure(made, refused(ErrorCode.SASL_AUTHENTICATION_FAILED, f'{{"status":"invalid_token","scope":"{PASSWORD}"}}'))
    assert "the broker rejected the token: invalid_token. Check the user" in error.message
    assert PASSWORD not in str(error) + repr(error.facts)


def test_a_brokers_words_are_one_line_and_not_endless() -> None:
    made, _ = after_handshake(Scripted([b"proof", None]))
    error = failure(made, refused(ErrorCode.SASL_AUTHENTICATION_FAILED, "x\n[DELIVERY] forged " * 1_700))
    assert "\n" not in error.message
    assert len(error.message) < MAX_WORDS + 300


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.UNSUPPORTED_SASL_MECHANISM, 30_000])
def test_errors_that_no_repetition_betters_are_final(code: int) -> None:
    made, _ = after_handshake()
    assert type(failure(made, refused(code))) is AuthenticationError
    unsure = login()
    unsure.begin()
    if code == 30_000:
        assert type(failure(unsure, SaslHandshakeResponse(code))) is AuthenticationError


def test_errors_that_pass_are_no_failed_login() -> None:
    made, _ = after_handshake()
    error = failure(made, refused(ErrorCode.REQUEST_TIMED_OUT))
    assert type(error) is BrokerError
    assert "rejected SaslAuthenticate: REQUEST_TIMED_OUT" in error.message


def test_a_server_that_proves_to_be_a_wrong_one_is_named() -> None:
    made, _ = after_handshake(Scripted([b"first", b"second", None]))
    error = failure(made, SaslAuthenticateResponse(auth_bytes=b"wrong"))
    assert type(error) is AuthenticationError
    assert error.message.startswith("broker 1 (kafka:9093): the SASL login with SCRAM-SHA-256 as user 'alice' failed: the broker")


def test_a_login_that_the_broker_ends_before_its_proof_has_failed() -> None:
    made, _ = after_handshake(Scripted([b"first", None], proves=False))
    assert "before it proved" in failure(made, SaslAuthenticateResponse()).message


def test_a_broker_that_never_comes_to_an_end_is_given_up() -> None:
    made, _ = after_handshake(Scripted([b"more"] * 100))
    for _ in range(MAX_MESSAGES - 1):
        assert made.answered(SaslAuthenticateResponse(auth_bytes=b"challenge")) is not None
    error = failure(made, SaslAuthenticateResponse(auth_bytes=b"challenge"))
    assert type(error) is ProtocolError
    assert "more than 20 SASL messages" in error.message


def test_answers_out_of_turn_are_not_taken() -> None:
    made, _ = after_handshake()
    with pytest.raises(UsageError):
        made.answered(SaslHandshakeResponse())
    with pytest.raises(UsageError):
        login().answered(SaslAuthenticateResponse())
