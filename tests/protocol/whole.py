"""Messages of either direction to and from one piece of bytes, for tests that treat both directions alike."""

from __future__ import annotations

from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import decode_request, decode_response, encode_request, encode_response


def encode(api: AnyApi, version: int, kind: str, correlation_id: int, client_id: str | None, body: Message) -> bytes:
    if kind == "request":
        return b"".join(encode_request(api, version, correlation_id, client_id, body))
    return b"".join(encode_response(api, version, correlation_id, body))


def decode(api: AnyApi, version: int, kind: str, data: bytes) -> tuple[int, Message]:
    """The correlation id and the body."""
    if kind == "response":
        return decode_response(api, version, data)
    header, body = decode_request(data, ALL_APIS)
    return header.correlation_id, body
