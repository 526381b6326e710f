"""PLAIN and SCRAM, from the server's side."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.credentials import Credentials, ScramCredential, scram_credential
from spark_kafka_sink.broker.sasl_server import (
    PlainSaslServer,
    SaslAuthenticationError,
    SaslError,
    ScramSaslServer,
)
from tests.broker.sasl.scram_client import ScramClient
from tests.every import every

# PLAIN


PLAIN_CREDENTIALS = Credentials({"alice": "secret", "bob": "sécret"})


def answered(message: bytes) -> tuple[bytes, str | None]:
    server = PlainSaslServer(PLAIN_CREDENTIALS)
    return server.evaluate_response(message), server.authorization_id


@pytest.mark.parametrize(
    ("message", "user"),
    [(b"\0alice\0secret", "alice"), (b"alice\0alice\0secret", "alice"), ("\0bob\0sécret".encode(), "bob")],
)
def test_the_right_password(message: bytes, user: str) -> None:
    assert answered(message) == (b"", user)


@every(
    "message, words",
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
    server = PlainSaslServer(PLAIN_CREDENTIALS)
    with pytest.raises(SaslAuthenticationError) as refused:
        server.evaluate_response(message)

    assert str(refused.value) == words
    assert server.authorization_id is None


# SCRAM


CREDENTIALS = Credentials({"alice": "secret", "a,b=c": "odd"})


class FixedCredentials(Credentials):
    """One user, with the salt of a vector."""

    def __init__(self, credential: ScramCredential) -> None:
        super().__init__({})
        self._credential = credential

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._credential


def server() -> ScramSaslServer:
    return ScramSaslServer("SCRAM-SHA-256", CREDENTIALS)


def test_the_exchange_of_rfc_7677() -> None:
    credential = scram_credential("sha256", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    exchange = ScramSaslServer("SCRAM-SHA-256", FixedCredentials(credential), nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")

    assert exchange.evaluate_response(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert (
        exchange.evaluate_response(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert exchange.authorization_id == "user"


def test_a_recorded_exchange_is_worth_nothing_in_another() -> None:
    heard, client = server(), ScramClient("alice", "secret")
    final = client.final(heard.evaluate_response(client.first()))
    heard.evaluate_response(final)
    another = server()
    another.evaluate_response(client.first())

    with pytest.raises(SaslError, match="Invalid client nonce in the final client message"):
        another.evaluate_response(final)


def test_one_flipped_bit_of_the_proof() -> None:
    exchange, client = server(), ScramClient("alice", "secret")
    head, _, proof = client.final(exchange.evaluate_response(client.first())).rpartition(b",p=")
    wrong = bytearray(base64.b64decode(proof))
    wrong[7] ^= 1
    with pytest.raises(SaslError, match="Invalid client credentials"):
        exchange.evaluate_response(head + b",p=" + base64.b64encode(wrong))


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
@settings(deadline=None)
def test_any_bytes_are_refused(messages: list[bytes]) -> None:
    exchange = server()
    for message in messages:
        with pytest.raises(SaslError):
            exchange.evaluate_response(message)
