"""PLAIN and SCRAM, from the server's side."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.credentials import Credentials, ScramCredential, scram_credential
from spark_kafka_sink.broker.sasl.sasl_server import (
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


def test_another_users_name_is_refused_only_to_who_knows_a_password() -> None:
    with pytest.raises(SaslAuthenticationError, match="Invalid username or password"):
        answered(b"bob\0alice\0wrong")


# SCRAM


CREDENTIALS = Credentials({"alice": "secret", "a,b=c": "odd"})


class FixedCredentials(Credentials):
    """One user, with the salt of a vector."""

    def __init__(self, credential: ScramCredential) -> None:
        super().__init__({})
        self._credential = credential

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._credential


def server(mechanism: str = "SCRAM-SHA-256") -> ScramSaslServer:
    return ScramSaslServer(mechanism, CREDENTIALS)


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


def test_extensions_are_signed_and_passed_over() -> None:
    exchange, client = server(), ScramClient("alice", "secret")
    first = exchange.evaluate_response(client.first())

    assert exchange.evaluate_response(client.final(first, extensions=",ext=1")) == client.server_signature()


def test_the_name_that_a_client_acts_for_is_its_own() -> None:
    exchange = server()
    client = ScramClient("alice", "secret", header="n,a=alice,")
    exchange.evaluate_response(client.final(exchange.evaluate_response(client.first())))
    assert exchange.authorization_id == "alice"

    with pytest.raises(SaslAuthenticationError, match="authorization id that is different from username"):
        server().evaluate_response(ScramClient("alice", "secret", header="n,a=bob,").first())


def test_a_delegation_token_is_no_user() -> None:
    with pytest.raises(SaslError, match="Invalid user credentials"):
        server().evaluate_response(b"n,,n=alice,r=nonce,tokenauth=true")


def test_a_recorded_exchange_is_worth_nothing_in_another() -> None:
    heard, client = server(), ScramClient("alice", "secret")
    final = client.final(heard.evaluate_response(client.first()))
    heard.evaluate_response(final)
    another = server()
    another.evaluate_response(client.first())

    with pytest.raises(SaslError, match="Invalid client nonce in the final client message"):
        another.evaluate_response(final)


def test_a_nonce_that_only_ends_like_the_servers() -> None:
    exchange, client = server(), ScramClient("alice", "secret")
    first = exchange.evaluate_response(client.first())
    nonce = first.decode().split(",")[0][2:]
    with pytest.raises(SaslError, match="Invalid client nonce"):
        exchange.evaluate_response(client.final(first, nonce=f"more{nonce}"))


def test_nothing_is_left_after_an_error_or_the_end() -> None:
    done, client = server(), ScramClient("alice", "secret")
    final = client.final(done.evaluate_response(client.first()))
    done.evaluate_response(final)
    with pytest.raises(SaslError, match="Unexpected challenge in Sasl server state COMPLETE"):
        done.evaluate_response(final)
    failed = server()
    with pytest.raises(SaslError):
        failed.evaluate_response(b"")
    with pytest.raises(SaslError, match="Unexpected challenge in Sasl server state FAILED"):
        failed.evaluate_response(client.first())


@every(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=with space",
        b"n,,n=alice,r=x,",
        b"\xff\xff,n=alice,r=x",
        "n,,n=älice,r=x".encode(),
        b"\0alice\0secret",
        b"n,,n=alice,r=x\n",
    ],
)
def test_a_first_message_that_is_none(message: bytes) -> None:
    with pytest.raises(SaslError, match=r"^Invalid SCRAM client first message format$"):
        server().evaluate_response(message)


@every("cut", [0, 1, 10, -1, -2, -5])
def test_a_final_message_that_was_cut(cut: int) -> None:
    exchange, client = server(), ScramClient("alice", "secret")
    final = client.final(exchange.evaluate_response(client.first()))
    with pytest.raises(SaslError):
        exchange.evaluate_response(final[:cut])


@every("proof", [b"", b"AAAA", b"A" * 400, b"!!!!", b"AAA"])
def test_a_proof_of_another_length_or_none(proof: bytes) -> None:
    exchange, client = server(), ScramClient("alice", "secret")
    without_proof = client.final(exchange.evaluate_response(client.first())).rpartition(b",p=")[0]
    with pytest.raises(SaslError):
        exchange.evaluate_response(without_proof + b",p=" + proof)


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


def test_a_message_as_large_as_a_frame_may_be_is_soon_refused() -> None:
    for message in (b"n,,n=" + b"a" * 500_000, b"n,,n=a,r=x" + b",a=b" * 100_000 + b"\n", b"n,,n=" + b"=2C" * 150_000):
        with pytest.raises(SaslError):
            server().evaluate_response(message)
