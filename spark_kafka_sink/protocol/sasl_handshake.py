"""SaslHandshake (17): the SASL mechanism that a client will use."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import NEVER_FLEXIBLE, Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, STRING, ArrayOf


@message
class SaslHandshakeRequest(Message):
    """v0: bare SASL tokens follow on the connection; v1: SaslAuthenticate requests."""

    mechanism: str = wire(STRING)


@message
class SaslHandshakeResponse(Message):
    """`mechanisms` are those that the broker has."""

    error_code: int = wire(INT16, default=0)
    mechanisms: Sequence[str] = wire(ArrayOf(STRING), default=())


SASL_HANDSHAKE = Api(ApiKey.SASL_HANDSHAKE, 0, 1, NEVER_FLEXIBLE, SaslHandshakeRequest, SaslHandshakeResponse)
