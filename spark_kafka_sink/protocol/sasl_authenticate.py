"""SaslAuthenticate (36): one step of a SASL exchange, after SaslHandshake v1."""

from __future__ import annotations

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BYTES, INT16, INT64, STRING


@message
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = wire(BYTES)

    def __repr__(self) -> str:
        # With PLAIN they are a password.
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


@message
class SaslAuthenticateResponse(Message):
    """`session_lifetime_ms`: when the client must authenticate again at the latest (KIP-368); 0: never."""

    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    auth_bytes: bytes = wire(BYTES, default=b"")
    session_lifetime_ms: int = wire(INT64, since=1, default=0, ignorable=True)


SASL_AUTHENTICATE = Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2, SaslAuthenticateRequest, SaslAuthenticateResponse)
