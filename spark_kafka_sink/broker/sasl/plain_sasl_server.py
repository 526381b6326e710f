"""PLAIN (RFC 4616): name and password, in one message."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.sasl.credentials import Credentials
from spark_kafka_sink.broker.sasl.sasl_server import SaslAuthenticationError

PLAIN: Final = "PLAIN"


class PlainSaslServer:
    """Kafka's PlainSaslServer, with its words."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.authorization_id: str | None = None

    def evaluate_response(self, response: bytes) -> bytes:
        tokens = response.decode(errors="replace").split("\0", 3)
        if len(tokens) != 3:
            raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        wanted, user, password = tokens
        for what, token in (("username", user), ("password", password)):
            if not token:
                raise SaslAuthenticationError(f"Authentication failed: {what} not specified")
        if not self._credentials.is_password(user, password):
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        check_authorization_id(wanted, user)
        self.authorization_id = user
        return b""


def check_authorization_id(wanted: str, user: str) -> None:
    """Nobody acts for another."""
    if wanted not in ("", user):
        text = "Authentication failed: Client requested an authorization id that is different from username"
        raise SaslAuthenticationError(text)
