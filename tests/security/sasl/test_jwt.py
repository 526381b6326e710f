"""What a token says of itself."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.security.sasl.oauthbearer import claims_of, expiry, seconds, unsigned_jwt
from tests.every import every


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_claims_of_a_token() -> None:
    token = f"{encoded(json.dumps({'alg': 'RS256'}))}.{encoded(json.dumps({'sub': 'älice', 'exp': 17}))}.c2ln"

    assert claims_of(token) == {"sub": "älice", "exp": 17}


def test_an_unsigned_token_is_read_back() -> None:
    assert claims_of(unsigned_jwt({"sub": "alice", "scope": ["a", "b"]})) == {"sub": "alice", "scope": ["a", "b"]}


@every(
    "token",
    [
        "",
        "opaque",
        "a.b.c",
        "..",
        f"{encoded('{}')}.{encoded('{}')}",
        f"{encoded('{}')}.{encoded('{}')}.x.y.z",
        f"{encoded('[]')}.{encoded('{}')}.",
        f"{encoded('{}')}.{encoded('17')}.",
        f"{encoded('{}')}.{encoded('{')}.",
        f"{encoded('{}')}.{encoded('[' * 100_000)}.",
        f"{encoded('{}')}.{encoded('{}')[:-1]}.",
        f"{encoded('{}')}.gIA.",
    ],
)
def test_what_is_no_jwt_has_no_claims(token: str) -> None:
    assert claims_of(token) is None


@every(
    "value, wanted",
    [
        (17, 17.0),
        (1.5, 1.5),
        ("3600", 3600.0),
        (0, 0.0),
        (-1, None),
        (True, None),
        (None, None),
        ("soon", None),
        ([1], None),
        (float("inf"), None),
        (float("nan"), None),
        (10**400, None),
        ("1e999", None),
    ],
)
def test_numbers_of_seconds(value: object, wanted: float | None) -> None:
    assert seconds(value) == wanted
    assert expiry({"exp": value}) == wanted


@given(st.text(max_size=60))
def test_any_text_has_claims_or_none(text: str) -> None:
    assert isinstance(claims_of(text), dict | None)
    assert isinstance(claims_of(f"{encoded('{}')}.{encoded(text)}."), dict | None)
