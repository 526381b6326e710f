"""The client's side of a SASL login, independent of the mechanism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.options.security_config import SecurityConfig


class SaslClient(Protocol):
    """One login on one connection. Used by one thread, and not after an error."""

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        """Takes the server's message (None before the first) and returns the next message to send (None if there is none).

        Raises AuthenticationError if the server cannot prove its identity, or sends a message that the mechanism does not allow.
        """

    def is_complete(self) -> bool:
        """Returns whether the server has completed its proofs. A login that ends earlier has failed."""

    def principal(self) -> str:
        """Returns the name of the user, for error texts; empty if unknown."""


class SaslMechanism(Protocol):
    """A mechanism with its settings. Shared by all connections of a client; used by its thread."""

    @property
    def name(self) -> str:
        """Returns the name in SaslHandshake."""

    def client(self, host: str) -> SaslClient | None:
        """Begins a login at a broker's `host`. Never waits: returns None while a token is being fetched.

        `wakeup` (see `OpenMechanism`) is called when to ask again. Raises AuthenticationError if no token is available.
        """

    def close(self) -> None:
        """Ends background work such as renewing a token, unless another client uses it. May be called again."""


class OpenMechanism(Protocol):
    """Makes the mechanism that the settings name: `security/sasl/mechanisms.py:open_mechanism`."""

    def __call__(self, config: SecurityConfig, wakeup: Callable[[], None]) -> SaslMechanism: ...
