"""OAUTHBEARER (RFC 7628) as in Kafka: a bearer token and SASL extensions in one message."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, Protocol

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.security.sasl.mechanism import refusal
from spark_kafka_sink.security.sasl.token_cache import Token

OAUTHBEARER: Final = "OAUTHBEARER"

_SEPARATOR: Final = "\x01"
_AUTH: Final = "auth"
# Kafka's OAuthBearerClientInitialResponse.
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


def wrong_extension(extensions: Mapping[str, str]) -> str | None:
    """Returns the problem with SASL extensions, by Kafka's rules; None if they are valid."""
    for name, value in extensions.items():
        if name == _AUTH:
            return "the SASL extension name 'auth' is reserved for the token"
        if not _EXTENSION_NAME.fullmatch(name):
            return f"{quoted(name)!r} is not a valid SASL extension name: only the letters A to Z and a to z are allowed"
        if not _EXTENSION_VALUE.fullmatch(value):
            return f"the value of the SASL extension {name} is empty or has characters other than printable ASCII"
    return None


def client_initial_response(token: Token, extensions: Mapping[str, str]) -> bytes:
    """Returns the first message. Raises AuthenticationError if it cannot represent the token or an extension."""
    value = token.value.reveal()
    if not _TOKEN.fullmatch(value):
        raise AuthenticationError(
            "the token is not a valid bearer token: it is empty or has characters other than letters, digits and -._~+/="
        )
    every = {**extensions, **token.extensions}
    if (wrong := wrong_extension(every)) is not None:
        raise AuthenticationError(wrong)
    parts = [f"{_AUTH}=Bearer {value}", *(f"{name}={text}" for name, text in every.items())]
    return f"n,,{_SEPARATOR}{''.join(part + _SEPARATOR for part in parts)}{_SEPARATOR}".encode()


class _State(Enum):
    FIRST = auto()
    ANSWER = auto()
    REFUSED = auto()
    COMPLETE = auto()
    FAILED = auto()


class OAuthBearerClient:
    """One login with a token: Kafka's OAuthBearerSaslClient."""

    def __init__(self, token: Token, extensions: Mapping[str, str], on_refused: Callable[[], None]) -> None:
        """on_refused: called when the broker does not accept the token."""
        self._token = token
        self._extensions = extensions
        self._on_refused = on_refused
        self._refusal = ""
        self._state = _State.FIRST

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        state, self._state = self._state, _State.FAILED
        if state is _State.FIRST:
            message, self._state = client_initial_response(self._token, self._extensions), _State.ANSWER
            return message
        if state is _State.ANSWER and not challenge:
            self._state = _State.COMPLETE
            return None
        if state is _State.ANSWER:
            # RFC 7628: the broker ends the login after the client has acknowledged the reason, which Kafka then repeats.
            self._on_refused()
            self._refusal, self._state = refusal((challenge or b"").decode(errors="replace")), _State.REFUSED
            return _SEPARATOR.encode()
        if state is _State.REFUSED:
            whose = f" of {quoted(self._token.principal)!r}" if self._token.principal else ""
            raise AuthenticationError(f"the broker rejected the token{whose}: {self._refusal or 'it gave no known reason'}")
        raise AuthenticationError("the broker sent another message after the OAUTHBEARER login had ended")

    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def principal(self) -> str:
        return self._token.principal


class Tokens(Protocol):
    """The source of a mechanism's tokens."""

    def get(self, host: str, user: object, wakeup: Callable[[], None]) -> Token | None:
        """Returns the token for a broker's host, or None while it is being fetched: see TokenCache.get."""

    def refused(self, host: str, token: Token) -> None:
        """Records that a broker does not accept the token."""

    def leave(self, user: object) -> None:
        """Ends a user's interest."""


class OAuthBearerMechanism:
    """Logs in with a token, which all producers of this process with the same settings share.

    Threads: the client's. It is a user of the token cache until it is closed or collected.
    """

    name: Final = OAUTHBEARER

    def __init__(self, tokens: Callable[[], Tokens], extensions: Mapping[str, str], wakeup: Callable[[], None]) -> None:
        """tokens: returns the token source of this process."""
        self._tokens = tokens
        self._extensions = extensions
        self._wakeup = wakeup

    def client(self, host: str) -> OAuthBearerClient | None:
        tokens = self._tokens()
        token = tokens.get(host, self, self._wakeup)
        if token is None:
            return None
        return OAuthBearerClient(token, self._extensions, lambda: tokens.refused(host, token))

    def close(self) -> None:
        """Stops renewing the token, unless another producer uses it."""
        self._tokens().leave(self)


_SECTIONS: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]*")


def claims_of(token: str) -> Mapping[str, Any] | None:
    """Returns a token's claims, or None for a token that is not a JWT: an opaque token is valid too."""
    match = _SECTIONS.fullmatch(token)
    if match is None:
        return None
    try:
        header, payload = (json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in match.groups())
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(header, dict) and isinstance(payload, dict) else None


def expiry(of: Mapping[str, Any]) -> float | None:
    """Returns when claims expire, in seconds since the epoch; None if there is no expiry."""
    return seconds(of.get("exp"))


def seconds(value: object) -> float | None:
    """Returns a number of seconds, which some servers write as text; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def unsigned_jwt(of: Mapping[str, object]) -> str:
    """Returns a JWT without a signature (`alg` none), which only a broker for tests accepts."""
    header = json.dumps({"alg": "none"}, separators=(",", ":"))
    payload = json.dumps(of, separators=(",", ":"))
    parts = (base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in (header, payload))
    return ".".join(parts) + "."
