"""Which tokens count: signatures by keys of every kind, times, issuers, audiences; and tokens without a signature."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.certificates import CertificateAuthority
from spark_kafka_sink.broker.client_settings import token
from spark_kafka_sink.broker.sasl.token_validator import TokenError, TokenValidator, ValidToken, token_validator
from spark_kafka_sink.errors import OptionError
from tests.every import every

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
SECRET = "a secret of thirty-two characters"
OAUTHBEARER = ("OAUTHBEARER",)


def validator(key: str | None = SECRET, **settings: Any) -> TokenValidator:
    made = token_validator(BrokerConfig(sasl_mechanisms=OAUTHBEARER, oauthbearer_key=key, **settings), lambda: NOW_MS)
    assert made is not None
    return made


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


Sign = Callable[[bytes], bytes]


def jwt(claims: dict[str, Any], algorithm: str = "none", sign: Sign = lambda data: b"", **header: Any) -> str:
    given = {"sub": "ana", "iat": NOW_S, "exp": NOW_S + 60} | claims
    parts = ({"alg": algorithm, **header}, {name: value for name, value in given.items() if value is not None})
    signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{base64url(sign(signed.encode()))}"


def by_secret(data: bytes) -> bytes:
    import hmac

    return hmac.digest(SECRET.encode(), data, "sha256")


def hs256(claims: dict[str, Any]) -> str:
    return jwt(claims, "HS256", by_secret)


RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def by_rsa(data: bytes) -> bytes:
    return RSA_KEY.sign(data, padding.PKCS1v15(), hashes.SHA256())


def by_ec(data: bytes) -> bytes:
    first, second = decode_dss_signature(EC_KEY.sign(data, ec.ECDSA(hashes.SHA256())))
    return first.to_bytes(32) + second.to_bytes(32)


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def jwks(key_id: str = "1") -> str:
    numbers, point = RSA_KEY.public_key().public_numbers(), EC_KEY.public_key().public_numbers()
    rsa_jwk = {"kty": "RSA", "kid": key_id, "e": base64url(b"\1\0\1"), "n": base64url(numbers.n.to_bytes(256))}
    ec_jwk = {"kty": "EC", "crv": "P-256", "x": base64url(point.x.to_bytes(32)), "y": base64url(point.y.to_bytes(32))}
    return json.dumps({"keys": [rsa_jwk, ec_jwk, {"kty": "OKP", "crv": "Ed25519", "x": ""}]})


def test_a_token_says_who_and_until_when() -> None:
    assert validator().validate(hs256({})) == ValidToken("ana", NOW_MS + 60_000)


@pytest.mark.parametrize("key", [pem(RSA_KEY), jwks()], ids=["pem", "jwks"])
def test_rs256(key: str) -> None:
    assert validator(key).validate(jwt({}, "RS256", by_rsa, kid="1")).principal == "ana"


@pytest.mark.parametrize("key", [pem(EC_KEY), jwks()], ids=["pem", "jwks"])
def test_es256(key: str) -> None:
    assert validator(key).validate(jwt({}, "ES256", by_ec)).principal == "ana"


def test_a_key_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys of me.json"
    file.write_text(jwks())
    made = validator(None, sasl_oauthbearer_jwks_endpoint_url=file.as_uri())

    assert made.validate(jwt({}, "RS256", by_rsa)).principal == "ana"


def test_a_certificate() -> None:
    made = validator(CertificateAuthority().client("issuer").certificate)
    with pytest.raises(TokenError, match="by none of the keys"):
        made.validate(jwt({}, "ES256", by_ec))


_BAD = [
    (jwt({}), "algorithm 'none'"),
    (jwt({}, "HS256", lambda data: by_secret(data)[:-1] + b"x"), "by none of the keys"),
    (jwt({}, "HS256"), "by none of the keys"),
    (jwt({}, "RS256", by_rsa), "no key for RS256"),
    (jwt({}, "PS256", by_rsa), "algorithm 'PS256'"),
    (hs256({"exp": NOW_S - 31}), "expired 31 s ago"),
    (hs256({"exp": None}), "claim exp"),
    (hs256({"exp": "soon"}), "claim exp"),
    (hs256({"exp": True}), "claim exp"),
    (hs256({"exp": 1e300}), "claim exp"),
    (hs256({"iat": None}), "claim iat"),
    (hs256({"nbf": NOW_S + 31}), "nbf"),
    (hs256({"exp": NOW_S + 1, "iat": NOW_S + 2}), "before it was issued"),
    (hs256({"sub": None}), "its claim sub must be a non-empty string"),
    (hs256({"sub": " "}), "its claim sub must be a non-empty string"),
    (hs256({"sub": 7}), "its claim sub must be a non-empty string"),
    (hs256({"scope": 7}), "scopes"),
    ("a.b", "2 parts"),
    ("YWJj.b.c", "header is not JSON"),
    ("!.b.c", "header is not base64url"),
    (f"{base64url(b'[]')}.b.c", "header is not a JSON object"),
]


# A token has a new signature in each process, so it cannot name a test.
@every("text, words", _BAD)
def test_what_does_not_count(text: str, words: str) -> None:
    with pytest.raises(TokenError, match=words):
        validator().validate(text)


def test_a_clock_that_differs() -> None:
    for claims in ({"exp": NOW_S - 29}, {"nbf": NOW_S + 29}):
        assert validator().validate(hs256({"iat": NOW_S - 100, **claims})).principal == "ana"
    with pytest.raises(TokenError):
        validator(sasl_oauthbearer_clock_skew_seconds=0).validate(hs256({"exp": NOW_S, "iat": NOW_S - 9}))


def test_issuer_audience_and_the_claim_of_the_name() -> None:
    made = validator(
        sasl_oauthbearer_expected_issuer="us",
        sasl_oauthbearer_expected_audience=("kafka", "other"),
        sasl_oauthbearer_sub_claim_name="client_id",
    )
    right = {"iss": "us", "aud": "kafka", "client_id": "app"}
    assert made.validate(hs256(right)).principal == "app"
    assert made.validate(hs256({**right, "aud": ["x", "kafka"]})).principal == "app"
    for claim, words in (
        ({"iss": "them"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "x"}, "audience"),
        ({"aud": None}, "aud"),
    ):
        with pytest.raises(TokenError, match=words):
            made.validate(hs256({**right, **claim}))


def test_the_public_key_is_no_secret() -> None:
    """The oldest attack on JWT: a token that says HS256, signed with the public key's text."""
    import hmac

    public = pem(RSA_KEY)
    forged = jwt({}, "HS256", lambda data: hmac.digest(public.encode(), data, "sha256"))
    with pytest.raises(TokenError, match="no key for HS256"):
        validator(public).validate(forged)


def test_the_key_id_chooses_among_several() -> None:
    with pytest.raises(TokenError, match="no key for RS256, 2"):
        validator(jwks("1")).validate(jwt({}, "RS256", by_rsa, kid="2"))


class TestWithoutAKey:
    def test_an_unsigned_token_counts(self) -> None:
        assert validator(None).validate(jwt({"iat": None})) == ValidToken("ana", NOW_MS + 60_000)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (hs256({}), "it is signed"),
            (jwt({}, "none", by_secret), "it is signed"),
            (jwt({"exp": NOW_S - 31}), "expired"),
            (jwt({"iat": NOW_S + 31}), "in the future"),
        ],
    )
    def test_what_does_not(self, text: str, words: str) -> None:
        with pytest.raises(TokenError, match=words):
            validator(None).validate(text)


@pytest.mark.parametrize("key", [SECRET, None])
def test_the_brokers_own_tokens_count(key: str | None) -> None:
    config = BrokerConfig(
        sasl_mechanisms=OAUTHBEARER,
        oauthbearer_key=key,
        sasl_oauthbearer_expected_issuer="us",
        sasl_oauthbearer_expected_audience=("kafka",),
    )
    import time

    made = token_validator(config, lambda: time.time_ns() // 1_000_000)
    assert made is not None
    assert made.validate(token(config, "ana")).principal == "ana"
    with pytest.raises(TokenError, match="expired"):
        made.validate(token(config, "ana", -100))


@every(
    "key, words",
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ('{"kty": "oct", "k": ""}', "its secret is empty"),
        ("{", "Expecting"),
        ('{"keys": []}', "no key of type"),
        ('{"kty": "RSA", "n": "AQ"}', "'e' is missing"),
        ('{"kty": "oct", "k": "!"}', "not base64url"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "oauthbearer_key is not a valid key"),
        (f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----", "it is a private key"),
    ],
)
def test_what_is_no_key(key: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as raised:
        validator(key)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(("url", "words"), [("https://h/keys", "must be a file: URL"), ("file:///none/keys", "No such file")])
def test_keys_that_cannot_be_had(url: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        validator(None, sasl_oauthbearer_jwks_endpoint_url=url)


def test_without_the_mechanism_there_is_none() -> None:
    assert token_validator(BrokerConfig(), lambda: NOW_MS) is None


@given(st.text() | st.lists(st.binary(max_size=30).map(base64url), min_size=3, max_size=3).map(".".join))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    for made in (validator(), validator(None)):
        with pytest.raises(TokenError):
            made.validate(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss", "scope"]), JSON))
def test_no_claims_do(claims: dict[str, Any]) -> None:
    try:
        assert validator().validate(hs256(claims)).principal
    except TokenError:
        pass
