"""PLAIN: one message with a name and a password."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.sasl.credentials import Credentials
from spark_kafka_sink.broker.sasl.plain_sasl_server import PlainSaslServer
from spark_kafka_sink.broker.sasl.sasl_server import SaslAuthenticationError

CREDENTIALS = Credentials({"alice": "secret", "bob": "sécret"})


def answered(message: bytes) -> tuple[bytes, str | None]:
    server = PlainSaslServer(CREDENTIALS)
    return server.evaluate_response(message), server.authorization_id


@pytest.mark.parametrize(
    ("message", "user"),
    [(b"\0alice\0secret", "alice"), (b"alice\0alice\0secret", "alice"), ("\0bob\0sécret".encode(), "bob")],
)
def test_the_right_password(message: bytes, user: str) -> None:
    assert answered(message) == (b"", user)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0carol\0secret", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0secret", "Authentication failed: Client requested an authorization id that is different from username"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0more", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
    ],
)
def test_a_wrong_one_in_kafkas_words(message: bytes, words: str) -> None:
    server = PlainSaslServer(CREDENTIALS)
    with pytest.raises(SaslAuthenticationError) as refused:
        server.evaluate_response(message)

    assert str(refused.value) == words
    assert server.authorization_id is None


def test_another_users_name_is_refused_only_to_who_knows_a_password() -> None:
    with pytest.raises(SaslAuthenticationError, match="Invalid username or password"):
        answered(b"bob\0alice\0wrong")
