"""Encoding and decoding of whole messages, header and body together, without the 4-byte size of the frame."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.api import AnyApi, Api, ApiKey, RequestT, ResponseT
from spark_kafka_sink.protocol.apis.api_versions import API_VERSIONS
from spark_kafka_sink.protocol.apis.init_producer_id import INIT_PRODUCER_ID
from spark_kafka_sink.protocol.apis.metadata import METADATA
from spark_kafka_sink.protocol.apis.produce import PRODUCE
from spark_kafka_sink.protocol.codec import message_codec, read_part, write_parts
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.values import Codec
from spark_kafka_sink.protocol.wire_types import CLASSIC_STRING, INT16, INT32, Buffer

APIS: Final[Mapping[int, AnyApi]] = {api.key: api for api in (PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID)}
"""The APIs of the producer, by key. all_apis.py has them all, but a worker takes twice the time to import it."""


@message
class RequestHeader(Message):
    """A request header: v1, or v2 with tagged fields. Older brokers must be able to read it, so client_id is never compact."""

    api_key: int = wire(INT16)
    api_version: int = wire(INT16)
    correlation_id: int = wire(INT32)
    client_id: str | None = wire(CLASSIC_STRING, nullable_since=1)


@message
class ResponseHeader(Message):
    """A response header: v0, or v1 with tagged fields."""

    correlation_id: int = wire(INT32)


_REQUEST_PREFIX: Final = struct.Struct(">hhi")
_UNSUPPORTED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_NO_APIS: Final = bytes(4)


def encode_request(
    api: Api[RequestT, ResponseT], version: int, correlation_id: int, client_id: str | None, body: RequestT
) -> list[Buffer]:
    """Returns header and body as buffers, in sending order. Records are the very objects of `body`.

    Raises:
        UnsupportedVersionError: the version lacks a field that is set.
        UsageError: a value does not fit its field.
    """
    header = RequestHeader(api.key, version, correlation_id, client_id)
    return write_parts(
        f"{api.name} v{version} request",
        (_request_header_codec(api.is_flexible(version)), header),
        (_body_codec(api, api.request, version), body),
    )


def encode_response(api: Api[RequestT, ResponseT], version: int, correlation_id: int, body: ResponseT) -> list[Buffer]:
    """Encodes a response, like `encode_request`, for the broker's side."""
    return write_parts(
        f"{api.name} v{version} response",
        (_response_header_codec(api.has_flexible_response_header(version)), ResponseHeader(correlation_id)),
        (_body_codec(api, api.response, version), body),
    )


def decode_response(api: Api[RequestT, ResponseT], version: int, data: Buffer) -> tuple[int, ResponseT]:
    """Returns the correlation id and the body. Raises ProtocolError unless the data begins with a complete message.

    Bytes after the message are ignored, as in Java's client: a newer broker or a gateway may send some. An ApiVersions response
    with UNSUPPORTED_VERSION is decoded as v0, regardless of the requested `version`. If that fails, it has only the error code.
    """
    view = memoryview(data)
    what = f"{api.name} v{version} response"
    header, offset = read_part(_response_header_codec(api.has_flexible_response_header(version)), view, 0, what)
    expected = _response_body_version(api, version, view, offset)
    try:
        body, _ = read_part(_body_codec(api, api.response, expected), view, offset, what)
    except ProtocolError:
        if expected == version:
            raise
        # librdkafka's mock cluster rejects a version in a format of its own. v0, which is tried next, has no choice of formats.
        body, _ = read_part(_body_codec(api, api.response, expected), memoryview(_UNSUPPORTED + _NO_APIS), 0, what)
    return header.correlation_id, body


def decode_request(data: Buffer, apis: Mapping[int, AnyApi] = APIS) -> tuple[RequestHeader, Message]:
    """Returns the header and the body of a request, for the broker's side. Records are views of `data`.

    Bytes after the message are ignored, as in Kafka: librdkafka 2.16 sends some with Metadata v13.

    Raises:
        ProtocolError: the data does not begin with a complete message.
        UnsupportedVersionError: `apis` does not have the API or version. Its facts api_key, version and correlation_id allow a
            broker to answer ApiVersions in v0.
    """
    view = memoryview(data)
    api, version = _requested(view, apis)
    what = f"{api.name} v{version} request"
    header, offset = read_part(_request_header_codec(api.is_flexible(version)), view, 0, what)
    body, _ = read_part(_body_codec(api, api.request, version), view, offset, what)
    return header, body


def _request_header_codec(flexible: bool) -> Codec:
    return message_codec(RequestHeader, 2 if flexible else 1, flexible)


def _response_header_codec(flexible: bool) -> Codec:
    return message_codec(ResponseHeader, 1 if flexible else 0, flexible)


def _body_codec(api: AnyApi, cls: type, version: int) -> Codec:
    if not api.has_version(version):
        spoken = f"v{api.min_version} to v{api.max_version}"
        raise UnsupportedVersionError(f"{api.name} v{version} is not supported; {spoken} are", api=api.name, version=version)
    return message_codec(cls, version, api.is_flexible(version))


def _response_body_version(api: AnyApi, version: int, data: memoryview, offset: int) -> int:
    """Returns the version of a response. A broker without the requested version of ApiVersions answers in v0 (KIP-511).

    The error code comes first in every version of that response, so it identifies the version.
    """
    return 0 if api.key is ApiKey.API_VERSIONS and data[offset : offset + 2] == _UNSUPPORTED else version


def _requested(data: memoryview, apis: Mapping[int, AnyApi]) -> tuple[AnyApi, int]:
    if len(data) < _REQUEST_PREFIX.size:
        raise ProtocolError(f"a request of {counted(len(data), 'byte')} cannot be decoded: it is shorter than a header")
    key, version, correlation_id = _REQUEST_PREFIX.unpack_from(data)
    api = apis.get(key)
    if api is None or not api.has_version(version):
        raise UnsupportedVersionError(
            f"{(api.name if api else f'API {key}')} v{version} is not supported",
            api_key=key,
            version=version,
            correlation_id=correlation_id,
        )
    return api, version
