"""SCRAM, from the client's side: RFC 7677, witnesses, and servers that cheat."""

from __future__ import annotations

import base64
import hashlib

import pytest
import scramp  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.sasl_server import ScramSaslServer
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.security.sasl.scram import MAX_ITERATIONS, SaltedPasswords, ScramClient, ScramMechanism
from tests.broker.sasl.scram_client import ScramClient as WitnessClient
from tests.every import every
from tests.examples import examples

NONCE = "client-nonce"
SALT = base64.b64encode(b"salt").decode()
FIRST = f"r={NONCE}-server,s={SALT},i=4096"

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def mechanism(name: str = "SCRAM-SHA-256", user: str = "alice", password: str = "pass-word") -> ScramMechanism:
    return ScramMechanism(name, lambda: (user, Secret(password)))


def fixed(nonce: str) -> ScramClient:
    return ScramMechanism("SCRAM-SHA-256", lambda: ("user", Secret("pencil")), nonce=lambda: nonce).client("broker")


def sent(client: ScramClient, challenge: bytes | None) -> bytes:
    answer = client.evaluate(challenge)
    assert answer is not None
    return answer


# Witnesses


def test_the_exchange_of_rfc_7677() -> None:
    client = fixed("rOprNGfwEbeRWgbNEkqO")

    assert client.evaluate(None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.evaluate(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096") == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not client.is_complete()
    assert client.evaluate(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert client.is_complete()


@every("name", MECHANISMS)
@every("user, password", [("alice", "pass-word"), ("a,b=c", "o,d=d"), ("=2C", "\\\"'")])
def test_scramp_accepts_our_client_and_we_accept_it(name: str, user: str, password: str) -> None:
    scheme = scramp.ScramMechanism(name)
    known = {user: scheme.make_auth_info(password)}
    server, client = scheme.make_server(known.__getitem__), mechanism(name, user, password).client("broker")
    server.set_client_first(sent(client, None).decode())
    server.set_client_final(sent(client, server.get_server_first().encode()).decode())

    assert client.evaluate(server.get_server_final().encode()) is None
    assert client.is_complete()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "pass-word"), ("a,b=c", "o,d=d")])
def test_our_broker_accepts_the_client_of_scramp(name: str, user: str, password: str) -> None:
    server, client = ScramSaslServer(name, Credentials({user: password})), scramp.ScramClient([name], user, password)
    client.set_server_first(server.evaluate_response(client.get_client_first().encode()).decode())
    client.set_server_final(server.evaluate_response(client.get_client_final().encode()).decode())

    assert server.authorization_id == user


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "pass-word"), ("a,b=c", "ﬁ no SASLprep é")])
def test_our_broker_accepts_our_client(name: str, user: str, password: str) -> None:
    server, client = ScramSaslServer(name, Credentials({user: password})), mechanism(name, user, password).client("broker")
    first = server.evaluate_response(sent(client, None))

    assert client.evaluate(server.evaluate_response(sent(client, first))) is None
    assert (client.is_complete(), server.authorization_id, client.principal()) == (True, user, user)


# What is sent


def test_the_extension_of_a_delegation_token_is_signed() -> None:
    class TokenClient(WitnessClient):
        def first(self) -> bytes:
            self._bare += ",tokenauth=true"
            return super().first()

    witness = TokenClient("token-id", "token-hmac", nonce=NONCE)
    credentials = ("token-id", Secret("token-hmac"))
    client = ScramMechanism("SCRAM-SHA-256", lambda: credentials, is_token=True, nonce=lambda: NONCE).client("broker")

    assert client.evaluate(None) == witness.first()
    assert client.evaluate(FIRST.encode()) == witness.final(FIRST.encode())
    assert client.evaluate(witness.server_signature()) is None


def test_every_login_has_a_nonce_of_its_own() -> None:
    of_one = mechanism()

    assert len({of_one.client("broker").evaluate(None) for _ in range(50)}) == 50


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The iterations of each PBKDF2 that is computed."""
    every, original = list[int](), hashlib.pbkdf2_hmac

    def counted(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        every.append(iterations)
        return original(hash_name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    return every


def log_in(of: ScramMechanism, server: ScramSaslServer) -> None:
    client = of.client("broker")
    first = server.evaluate_response(sent(client, None))
    client.evaluate(server.evaluate_response(sent(client, first)))
    assert client.is_complete()


def test_reconnecting_costs_no_iterations(computed: list[int]) -> None:
    credentials, of_one = Credentials({"alice": "pass-word"}), mechanism()
    computed.clear()
    for _ in range(5):
        log_in(of_one, ScramSaslServer("SCRAM-SHA-256", credentials))

    assert computed == [4096]


def test_another_password_salt_or_number_is_salted_again() -> None:
    passwords = SaltedPasswords("sha256")
    asked = [("old", b"salt", 4096), ("new", b"salt", 4096), ("new", b"other", 4096), ("new", b"other", 4097)]
    expected = [hashlib.pbkdf2_hmac("sha256", password.encode(), salt, count) for password, salt, count in asked]

    for _ in range(2):
        assert [passwords.salted(*each) for each in asked] == expected


def test_salted_passwords_are_bounded(computed: list[int]) -> None:
    passwords = SaltedPasswords("sha256")
    for number in range(50):
        passwords.salted("password", b"the broker's", 4096)
        passwords.salted("password", bytes([number]), 4096)

    assert len(computed) == 51
    assert len(passwords._known) <= 8


def test_a_mechanism_keeps_no_password() -> None:
    of_one = mechanism(password="needle-in-memory")
    log_in(of_one, ScramSaslServer("SCRAM-SHA-256", Credentials({"alice": "needle-in-memory"})))

    assert "needle-in-memory" not in repr(vars(of_one)) + repr(vars(of_one._passwords)) + repr(of_one.client("broker")._user)


# Servers that cheat


def refused_first(message: bytes) -> str:
    client = fixed(NONCE)
    client.evaluate(None)
    with pytest.raises(AuthenticationError) as refused:
        client.evaluate(message)
    assert not client.is_complete()
    with pytest.raises(AuthenticationError, match="after the SCRAM-SHA-256 login had ended"):
        client.evaluate(message)
    return refused.value.message


@pytest.mark.fault("security", "SCRAM: wrong signature, nonce, too few iterations")
@every("iterations", [0, 1, 4095, MAX_ITERATIONS + 1, 10**9, 10**19])
def test_iterations_out_of_bounds_are_refused_before_they_are_computed(iterations: int) -> None:
    text = refused_first(f"r={NONCE}-server,s={SALT},i={iterations}".encode())

    assert f"requests {iterations:,} SCRAM-SHA-256 iterations; 4,096 to 1,000,000 are allowed" in text
    assert "'user'" in text


@pytest.mark.fault("security", "SCRAM: wrong signature, nonce, too few iterations")
@every(
    "message, words",
    [
        (f"r=another-nonce,s={SALT},i=4096", "nonce does not continue the client's"),
        (f"r={NONCE[:-1]},s={SALT},i=4096", "nonce does not continue the client's"),
        (f"r={NONCE},s={SALT},i=4096", "nonce does not continue the client's"),
        (f"r=x{NONCE}-server,s={SALT},i=4096", "nonce does not continue the client's"),
        (f"r=,s={SALT},i=4096", "first message has an invalid format"),
        (f"s={SALT},i=4096", "first message has an invalid format"),
        (f"r={NONCE}-server,s=!!!!,i=4096", "first message has an invalid format"),
        (f"r={NONCE}-server,s=AAA,i=4096", "first message has an invalid format"),
        (f"r={NONCE}-server,s=A===,i=4096", "first message has an invalid format"),
        (f"r={NONCE}-server,s=,i=4096", "salt is empty"),
        (f"r={NONCE}-server,s={SALT}", "first message has an invalid format"),
        (f"r={NONCE}-server,s={SALT},i=", "first message has an invalid format"),
        (f"r={NONCE}-server,s={SALT},i=-4096", "first message has an invalid format"),
        (f"r={NONCE}-server,s={SALT},i=4096.0", "first message has an invalid format"),
        (f"r={NONCE}-server,s={SALT},i={'9' * 5000}", "first message has an invalid format"),
        (f"r={NONCE}-server,s={SALT},i=٤٠٩٦", "first message has an invalid format"),
        (f"m=extension,{FIRST}", "first message has an invalid format"),  # RFC 5802: it must fail
        (f"{FIRST}\n", "first message has an invalid format"),
        (f"s={SALT},{NONCE},i=4096", "first message has an invalid format"),
        ("", "first message has an invalid format"),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "first message has an invalid format"),
        ("\x00\xff" * 40, "first message has an invalid format"),
        ("r=" + "x" * 20_000, "message of 20,002 bytes; at most 16,384 are allowed"),
        ("e=unknown-user", "the broker rejected the SCRAM-SHA-256 login of user 'user': unknown-user"),
    ],
)
def test_a_first_message_that_is_wrong(message: str, words: str) -> None:
    assert words in refused_first(message.encode())


def test_an_extension_of_the_server_is_signed_and_passed_over() -> None:
    client = fixed(NONCE)
    client.evaluate(None)

    assert sent(client, f"{FIRST},ext=1".encode()).startswith(b"c=biws,r=client-nonce-server,p=")


@pytest.mark.fault("security", "SCRAM: wrong signature, nonce, too few iterations")
@every(
    "message, words",
    [
        (b"v=" + base64.b64encode(bytes(32)), "signature is wrong: it does not know the credentials of user 'user'"),
        (b"v=" + base64.b64encode(bytes(31)), "signature is wrong"),
        (b"v=", "signature is wrong"),
        (b"v=!!!!", "final message has an invalid format"),
        (b"v=AAA", "final message has an invalid format"),
        (b"", "final message has an invalid format"),
        (b"v", "final message has an invalid format"),
        (FIRST.encode(), "final message has an invalid format"),
        (b"v=" + b"A" * 20_000, "at most 16,384 are allowed"),
        (b"e=invalid-proof", "the broker rejected the SCRAM-SHA-256 login of user 'user': invalid-proof"),
        (b"e=other\x1b[31m\nerror,ext=1", "the broker rejected the SCRAM-SHA-256 login of user 'user': other [31m error"),
    ],
)
def test_a_final_message_that_is_wrong(message: bytes, words: str) -> None:
    client = fixed(NONCE)
    client.evaluate(None)
    client.evaluate(FIRST.encode())
    with pytest.raises(AuthenticationError) as refused:
        client.evaluate(message)

    assert words in refused.value.message
    assert not client.is_complete()


def test_a_server_that_repeats_what_it_was_sent_proves_nothing() -> None:
    client = fixed(NONCE)
    client.evaluate(None)
    proof = sent(client, FIRST.encode()).rpartition(b",p=")[2]
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        client.evaluate(b"v=" + proof)


def test_no_answer_at_all_is_no_login() -> None:
    for steps in (1, 2):
        client = fixed(NONCE)
        for challenge in (None, FIRST.encode())[:steps]:
            client.evaluate(challenge)
        with pytest.raises(AuthenticationError, match="invalid format"):
            client.evaluate(None)
        assert not client.is_complete()


# A changed byte


def good_login() -> tuple[ScramClient, list[bytes]]:
    return fixed("rOprNGfwEbeRWgbNEkqO"), [
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]


@given(st.integers(0, 1), st.integers(0, 1000), st.integers(0, 255))
@settings(max_examples=examples(60))
def test_one_changed_byte_is_enough(place: int, index: int, value: int) -> None:
    client, messages = good_login()
    wrong = bytearray(messages[place])
    wrong[index % len(wrong)] = value
    is_changed = bytes(wrong) != messages[place]
    messages[place] = bytes(wrong)
    client.evaluate(None)
    try:
        for message in messages:
            client.evaluate(message)
    except AuthenticationError:
        assert not client.is_complete()
    else:
        assert client.is_complete()
        assert not is_changed
