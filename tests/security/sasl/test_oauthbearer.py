"""OAUTHBEARER, from the client's side."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerMechanism, wrong_extension
from spark_kafka_sink.security.sasl.token_cache import Token
from tests.every import every

TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"


class FixedTokens:
    """Has one token, or none yet."""

    def __init__(self, token: Token | None) -> None:
        self.token = token
        self.refusals: list[Token] = []
        self.left: list[object] = []

    def get(self, host: str, user: object, wakeup: Callable[[], None]) -> Token | None:
        return self.token

    def refused(self, host: str, token: Token) -> None:
        self.refusals.append(token)

    def leave(self, user: object) -> None:
        self.left.append(user)


def mechanism(tokens: FixedTokens, extensions: Mapping[str, str] | None = None) -> OAuthBearerMechanism:
    return OAuthBearerMechanism(lambda: tokens, extensions or {}, lambda: None)


def client(value: str = TOKEN, extensions: Mapping[str, str] | None = None, **of_token: str) -> OAuthBearerClient:
    made = mechanism(FixedTokens(Token(Secret(value), principal="alice", extensions=of_token)), extensions).client("broker")
    assert made is not None
    return made


def test_a_token_that_is_accepted() -> None:
    login = client()

    assert login.evaluate(None) == f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()
    assert not login.is_complete()
    assert login.evaluate(b"") is None
    assert (login.is_complete(), login.principal()) == (True, "alice")
    with pytest.raises(AuthenticationError, match="after the OAUTHBEARER login had ended"):
        login.evaluate(b"")


def test_extensions_of_the_settings_and_of_the_token() -> None:
    login = client(extensions={"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}, identityPoolId="pool-2")

    expected = f"n,,\x01auth=Bearer {TOKEN}\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01"
    assert login.evaluate(None) == expected.encode()


@every(
    "extensions, words",
    [
        ({"auth": "x"}, "'auth' is reserved"),
        ({"": "x"}, "'' is not a valid SASL extension name"),
        ({"a1": "x"}, "'a1' is not a valid SASL extension name"),
        ({"a\x01b": "x"}, "'a b' is not a valid SASL extension name"),
        ({"name": ""}, "the value of the SASL extension name is empty"),
        ({"name": "a\x01auth=Bearer other"}, "the value of the SASL extension name is empty or has"),
        ({"name": "ä"}, "the value of the SASL extension name is empty or has"),
        ({"name": "any value, = \t too"}, None),
        ({}, None),
    ],
)
def test_extensions_follow_kafkas_rules(extensions: Mapping[str, str], words: str | None) -> None:
    wrong = wrong_extension(extensions)

    assert (wrong is None) == (words is None)
    assert words is None or (wrong is not None and words in wrong)


@every("value", ["", "two words", "line\nend", "a\x01b", "tök", "=", "${env:HOME}"])
def test_a_token_that_would_break_the_message_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(AuthenticationError, match="is not a valid bearer token") as refused:
        client(value).evaluate(None)

    assert not value.strip("=") or value not in str(refused.value)


def test_a_wrong_extension_of_a_token_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="the value of the SASL extension pool is empty"):
        client(pool="").evaluate(None)


REFUSALS = [
    (b'{"status":"invalid_token"}', "invalid_token"),
    (b'{"status":"insufficient_scope", "scope":"kafka.write"}', "insufficient_scope"),
    *((answer, "it gave no known reason") for answer in (b"no JSON", b"{}", b"[1]", b"[" * 100_000, b'{"status":["x"]}')),
    (json.dumps({"status": TOKEN.encode().hex()}).encode(), "it gave no known reason"),
]


@every("challenge, words", REFUSALS)
def test_a_token_that_is_refused(challenge: bytes, words: str) -> None:
    tokens = FixedTokens(Token(Secret(TOKEN), principal="alice"))
    login = mechanism(tokens).client("broker")
    assert login is not None
    login.evaluate(None)

    assert login.evaluate(challenge) == b"\x01"
    assert not login.is_complete()
    assert tokens.refusals == [tokens.token]
    with pytest.raises(AuthenticationError) as refused:
        login.evaluate(b"")
    assert refused.value.message == f"the broker rejected the token of 'alice': {words}"


def test_while_there_is_no_token_there_is_no_login() -> None:
    assert mechanism(FixedTokens(None)).client("broker") is None


def test_a_closed_mechanism_leaves_the_tokens() -> None:
    tokens = FixedTokens(None)
    closed = mechanism(tokens)
    closed.close()

    assert tokens.left == [closed]
