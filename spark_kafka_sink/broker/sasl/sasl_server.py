"""What a mechanism is to who runs it (javax.security.sasl.SaslServer)."""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """A login failed; the client is not told why, because the reason may say whether a user exists."""


class SaslAuthenticationError(SaslError):
    """A login failed, and the client is told the message: it holds nothing that only an authenticated one may know."""


class SaslServer(Protocol):
    """One exchange with one client. After an error it is not used any more."""

    authorization_id: str | None
    """Who the client is; None until the exchange is complete."""

    def evaluate_response(self, response: bytes) -> bytes:
        """What the client sent, to what it is sent. Raises SaslError."""
        ...
