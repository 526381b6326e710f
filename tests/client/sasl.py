"""A SASL mechanism that a test steers, and settings of clients that log in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.sasl.mechanism import OpenMechanism

USER = "alice"
PASSWORD = "secret-word"
LOGIN: Mapping[str, object] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


class PlainText:
    """PLAIN, or whatever `replies` says: each message to send, None where there is nothing more to send."""

    def __init__(self, password: str = PASSWORD, replies: list[bytes | None] | None = None, *, proves: bool = True) -> None:
        self.challenges: list[bytes | None] = []
        self._replies = [f"\0{USER}\0{password}".encode(), None] if replies is None else list(replies)
        self._proves = proves

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        self.challenges.append(challenge)
        if challenge == b"wrong":
            raise AuthenticationError("the broker does not know the password either")
        return self._replies.pop(0)

    def is_complete(self) -> bool:
        return self._proves and not self._replies

    def principal(self) -> str:
        return USER


class Mechanism:
    """Logs in with `password`. While it `is_fetching` there is no token; `error` is raised instead of a login.

    asked: the hosts that a login was asked for.
    """

    def __init__(self, name: str = "PLAIN", password: str = PASSWORD) -> None:
        self.name = name
        self.password = password
        self.is_fetching = False
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.wakeup: Callable[[], None] = lambda: None

    def close(self) -> None:
        self.is_closed = True

    def client(self, host: str) -> PlainText | None:
        self.asked.append(host)
        if self.error is not None:
            raise self.error
        return None if self.is_fetching else PlainText(self.password)

    @property
    def open(self) -> OpenMechanism:
        def opened(config: SecurityConfig, wakeup: Callable[[], None]) -> Mechanism:
            self.wakeup = wakeup
            return self

        return opened
