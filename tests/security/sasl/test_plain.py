"""PLAIN, from the client's side."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.sasl_server import PlainSaslServer
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.security.sasl.scram import PlainMechanism


def mechanism(user: str = "alice", password: str = "se cret,=\\\"'é") -> PlainMechanism:
    return PlainMechanism(lambda: (user, Secret(password)))


def test_our_broker_accepts_it() -> None:
    client, server = mechanism().client("broker"), PlainSaslServer(Credentials({"alice": "se cret,=\\\"'é"}))
    message = client.evaluate(None)
    assert message is not None
    completed = [client.is_complete()]

    assert client.evaluate(server.evaluate_response(message)) is None
    assert ([*completed, client.is_complete()], server.authorization_id) == ([False, True], "alice")
    assert client.principal() == "alice"


def test_bytes_in_the_answer_are_passed_over_as_in_java() -> None:
    client = mechanism().client("broker")
    client.evaluate(None)

    assert (client.evaluate(b"welcome"), client.is_complete()) == (None, True)


def test_a_message_after_the_end_is_an_error() -> None:
    client = mechanism().client("broker")
    client.evaluate(None)
    client.evaluate(b"")
    with pytest.raises(AuthenticationError, match="after the PLAIN login was complete"):
        client.evaluate(b"")


@pytest.mark.parametrize(
    ("user", "password", "words"),
    [
        ("a\0b", "secret", "the user for the PLAIN login contains a NUL"),
        ("alice", "se\0cret", "the password for the PLAIN login contains a NUL"),
        ("", "secret", "the user for the PLAIN login is empty"),
        ("alice", "", "the password for the PLAIN login is empty"),
    ],
)
def test_what_plain_cannot_send(user: str, password: str, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words) as refused:
        mechanism(user, password).client("broker").evaluate(None)

    assert "cret" not in str(refused.value)


def test_a_lone_surrogate_is_a_wrong_password_and_no_crash() -> None:
    assert mechanism("alice", "\ud800").client("broker").evaluate(None) == b"\0alice\0\xed\xa0\x80"
