"""The check of a token (JWT): signature, times, issuer, audience. Unsigned tokens are supported, as in Kafka's default."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.errors import OptionError, UsageError
from spark_kafka_sink.installation import not_installed


class TokenError(Exception):
    """A rejected token. The client learns only that; the reason goes to the broker's log."""


@dataclass(frozen=True, slots=True)
class ValidToken:
    """A token that passed the checks. `expires_ms`: in ms since 1970."""

    principal: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Key:
    """A key that verifies tokens. `kind`: RSA, EC or oct. `verify`: checks a signature by an algorithm."""

    kind: str
    key_id: str | None
    verify: Callable[[str, bytes, bytes], bool]


# The algorithm's kind of key and hash; for EC also the curve and the number of bytes in each half of a signature.
_ALGORITHMS: Final[Mapping[str, tuple[str, str, tuple[str, int]]]] = {
    "HS256": ("oct", "sha256", ("", 0)),
    "HS384": ("oct", "sha384", ("", 0)),
    "HS512": ("oct", "sha512", ("", 0)),
    "RS256": ("RSA", "sha256", ("", 0)),
    "RS384": ("RSA", "sha384", ("", 0)),
    "RS512": ("RSA", "sha512", ("", 0)),
    "ES256": ("EC", "sha256", ("secp256r1", 32)),
    "ES384": ("EC", "sha384", ("secp384r1", 48)),
    "ES512": ("EC", "sha512", ("secp521r1", 66)),
}


class TokenValidator:
    """Kafka's ValidatorAccessTokenValidator or OAuthBearerUnsecuredValidatorCallbackHandler. Any thread may call it."""

    def __init__(self, keys: Sequence[Key], config: BrokerConfig, wall_ms: Callable[[], int]) -> None:
        """Creates a validator. `keys`: one of them must have signed each token; if empty, tokens must be unsigned."""
        self._keys = tuple(keys)
        self._config = config
        self._wall_ms = wall_ms

    def validate(self, token: str) -> ValidToken:
        """Returns the checked token. Raises TokenError."""
        parts = token.split(".")
        if len(parts) != 3:
            raise TokenError(f"it has {len(parts)} parts, but a JWT has 3")
        header, claims = _object(parts[0], "header"), _object(parts[1], "payload")
        if self._keys:
            self._check_signature(header, f"{parts[0]}.{parts[1]}".encode(), _decoded(parts[2], "signature"))
        elif header.get("alg") != "none" or parts[2]:
            raise TokenError("it is signed, but this broker has no key to verify it")
        self._check_times(claims)
        self._check_origin(claims)
        return ValidToken(self._principal(claims), math.floor(_number(claims, "exp") * 1000))

    def _check_signature(self, header: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            raise TokenError(f"its algorithm {algorithm!r} is not supported; it must be one of {', '.join(_ALGORITHMS)}")
        kind = _ALGORITHMS[algorithm][0]
        # The key's kind decides, not the token: a public key must never be used as the secret of HS256.
        candidates = [key for key in self._keys if key.kind == kind and (None in (key.key_id, key_id) or key.key_id == key_id)]
        if not any(key.verify(algorithm, signed, signature) for key in candidates):
            raise TokenError(
                "its signature is by none of the keys" if candidates else f"there is no key for {algorithm}, {key_id}"
            )

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now_s, skew_s = self._wall_ms() / 1000, self._config.sasl_oauthbearer_clock_skew_seconds
        expires_s = _number(claims, "exp")
        if now_s - skew_s >= expires_s:
            raise TokenError(f"it expired {now_s - expires_s:,.0f} s ago")
        if "nbf" in claims and now_s + skew_s < _number(claims, "nbf"):
            raise TokenError("it is not valid yet (nbf)")
        if self._keys or "iat" in claims:
            issued_s = _number(claims, "iat")
            if not self._keys and now_s + skew_s < issued_s:
                raise TokenError("it was issued in the future (iat)")
            if expires_s <= issued_s:
                raise TokenError("it expires before it was issued")

    def _check_origin(self, claims: Mapping[str, Any]) -> None:
        issuer, audiences = self._config.sasl_oauthbearer_expected_issuer, self._config.sasl_oauthbearer_expected_audience
        if issuer is not None and claims.get("iss") != issuer:
            raise TokenError("it has another issuer (iss)")
        given = claims.get("aud")
        for_whom = given if isinstance(given, list) else [given]
        if audiences and not any(audience in for_whom for audience in audiences):
            raise TokenError("it has another audience (aud)")
        scope = claims.get(self._config.sasl_oauthbearer_scope_claim_name, "")
        if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(each, str) for each in scope)):
            raise TokenError("its scopes are not strings")

    def _principal(self, claims: Mapping[str, Any]) -> str:
        name = self._config.sasl_oauthbearer_sub_claim_name
        principal = claims.get(name)
        if not isinstance(principal, str) or not principal.strip():
            raise TokenError(f"its claim {name} must be a non-empty string, the user's name")
        return principal.strip()


def token_validator(config: BrokerConfig, wall_ms: Callable[[], int]) -> TokenValidator | None:
    """Returns the validator for these settings; None without OAUTHBEARER.

    Raises:
        OptionError: a key is set but cannot be read.
    """
    if "OAUTHBEARER" not in config.sasl_mechanisms:
        return None
    text, option = config.oauthbearer_key, "oauthbearer_key"
    if text is None and config.sasl_oauthbearer_jwks_endpoint_url is not None:
        option = "sasl.oauthbearer.jwks.endpoint.url"
        text = _file(config.sasl_oauthbearer_jwks_endpoint_url, option)
    return TokenValidator([] if text is None else keys(text, option), config, wall_ms)


def _file(url: str, option: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise OptionError(f"{option}={url} must be a file: URL, because this broker does not fetch keys", option=option)
    try:
        return Path(unquote(parts.path)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(f"{option}={url} cannot be read: {why}", option=option) from None


def keys(text: str, option: str) -> list[Key]:
    """Parses public keys or certificates in PEM, a JWKS or one JWK. Any other text is the secret of HS256. Raises OptionError."""
    try:
        if "-----BEGIN" in text:
            return [_pem_key(text)]
        if text.lstrip().startswith("{"):
            plain = json.loads(text)
            found = [key for each in plain.get("keys", [plain]) if (key := _jwk(each)) is not None]
            if not found:
                raise ValueError("it has no key of type RSA, EC or oct")
            return found
        if not text.strip():
            raise ValueError("it is empty")
    except (ValueError, TypeError, KeyError, AttributeError, TokenError) as error:
        # Never with the text, which may be a secret in the wrong place.
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise OptionError(f"{option} is not a valid key: {why}", option=option) from None
    return [_secret_key(text.encode(), None)]


def _secret_key(secret: bytes, key_id: str | None) -> Key:
    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(hmac.digest(secret, signed, _ALGORITHMS[algorithm][1]), signature)

    return Key("oct", key_id, verify)


def _jwk(plain: Mapping[str, Any]) -> Key | None:
    kind, key_id = plain["kty"], plain.get("kid")
    if plain.get("use", "sig") != "sig":
        return None
    if kind == "oct":
        secret = _decoded(plain["k"], "k")
        if not secret:  # everyone could sign with it
            raise ValueError("its secret is empty")
        return _secret_key(secret, key_id)
    _needs_cryptography()
    if kind == "RSA":
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

        return _public_key(RSAPublicNumbers(_integer(plain, "e"), _integer(plain, "n")).public_key(), key_id)
    if kind == "EC":
        from cryptography.hazmat.primitives.asymmetric import ec

        curves: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
        if plain["crv"] not in curves:
            return None
        numbers = ec.EllipticCurvePublicNumbers(_integer(plain, "x"), _integer(plain, "y"), curves[plain["crv"]])
        return _public_key(numbers.public_key(), key_id)
    return None


def _pem_key(text: str) -> Key:
    _needs_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if "PRIVATE KEY" in text:
        raise ValueError("it is a private key, but the public key is needed")
    data = text.encode()
    return _public_key(
        x509.load_pem_x509_certificate(data).public_key() if "BEGIN CERTIFICATE" in text else load_pem_public_key(data), None
    )


def _public_key(public: object, key_id: str | None) -> Key:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    digests: dict[str, hashes.HashAlgorithm] = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        _, digest, (curve, size) = _ALGORITHMS[algorithm]
        try:
            if isinstance(public, rsa.RSAPublicKey):
                public.verify(signature, signed, padding.PKCS1v15(), digests[digest])
            elif isinstance(public, ec.EllipticCurvePublicKey):
                if public.curve.name != curve or len(signature) != 2 * size:
                    return False
                halves = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
                public.verify(encode_dss_signature(*halves), signed, ec.ECDSA(digests[digest]))
        except InvalidSignature:
            return False
        return True

    if isinstance(public, rsa.RSAPublicKey):
        return Key("RSA", key_id, verify)
    if isinstance(public, ec.EllipticCurvePublicKey):
        return Key("EC", key_id, verify)
    raise ValueError("it is neither an RSA nor an EC key")


def _needs_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise UsageError(f"token signatures cannot be verified: {not_installed('cryptography')}") from None


_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")


def _decoded(text: str, what: str) -> bytes:
    if not _BASE64URL.fullmatch(text):
        raise TokenError(f"its {what} is not base64url")
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error:
        raise TokenError(f"its {what} is not base64url") from None


def _object(text: str, what: str) -> Mapping[str, Any]:
    try:
        plain = json.loads(_decoded(text, what))
    except (ValueError, RecursionError):
        raise TokenError(f"its {what} is not JSON") from None
    if not isinstance(plain, dict):
        raise TokenError(f"its {what} is not a JSON object")
    return plain


def _number(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e12 < value < 1e12:
        raise TokenError(f"its claim {name} is not a valid time")
    return float(value)


def _integer(plain: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(_decoded(plain[name], name))
