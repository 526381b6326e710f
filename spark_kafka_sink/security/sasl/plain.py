"""PLAIN (RFC 4616): a user and a password in one message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.secret import Secret

PLAIN: Final = "PLAIN"

CredentialsSource: TypeAlias = Callable[[], tuple[str, Secret]]
"""Returns the current user and password: a file that holds the password may have changed."""


class PlainClient:
    """One login with PLAIN. The broker proves nothing: only TLS protects against an impostor."""

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password
        self._is_sent = False
        self._is_complete = False

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        if not self._is_sent:
            self._is_sent = True
            return self._message()
        if self._is_complete:
            raise AuthenticationError("the broker sent another message after the PLAIN login was complete")
        # RFC 4616 has no response. As in Java and librdkafka, its bytes are ignored.
        self._is_complete = True
        return None

    def is_complete(self) -> bool:
        return self._is_complete

    def principal(self) -> str:
        return self._user

    def _message(self) -> bytes:
        password = self._password.reveal()
        for what, text in (("user", self._user), ("password", password)):
            if "\0" in text:
                raise AuthenticationError(f"the {what} for the PLAIN login contains a NUL character, which PLAIN cannot send")
            if not text:
                raise AuthenticationError(f"the {what} for the PLAIN login is empty")
        # A lone surrogate, which UTF-8 cannot encode, gives a wrong password instead of a crash.
        return f"\0{self._user}\0{password}".encode(errors="surrogatepass")


class PlainMechanism:
    """Logs in with PLAIN. Resolves user and password for each connection."""

    name: Final = PLAIN

    def __init__(self, credentials: CredentialsSource) -> None:
        self._credentials = credentials

    def client(self, host: str) -> PlainClient:
        user, password = self._credentials()
        return PlainClient(user, password)

    def close(self) -> None:
        """Does nothing."""
