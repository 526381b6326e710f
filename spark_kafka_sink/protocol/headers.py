"""The headers before a request's and a response's body."""

from __future__ import annotations

from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import CLASSIC_STRING, INT16, INT32


@message
class RequestHeader(Message):
    """v1, and v2 with tagged fields. Older brokers must be able to read any of them, so client_id is never compact."""

    api_key: int = wire(INT16)
    api_version: int = wire(INT16)
    correlation_id: int = wire(INT32)
    client_id: str | None = wire(CLASSIC_STRING, nullable_since=1)


@message
class ResponseHeader(Message):
    """v0, and v1 with tagged fields."""

    correlation_id: int = wire(INT32)
