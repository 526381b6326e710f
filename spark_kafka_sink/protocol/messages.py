"""Encoding and decoding of whole messages, header and body together, without the 4-byte size of the frame."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol.api import AnyApi, Api, ApiKey, RequestT, ResponseT
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, METADATA
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, PRODUCE, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.codec import message_codec, read_part, write_parts
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import CLASSIC_STRING, INT16, INT32, Buffer, Message, message, wire
from spark_kafka_sink.protocol.values import COMPACT_LENGTH, INT32_LENGTH, Codec

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
        (_header_codec(RequestHeader, 1, api.is_flexible(version)), header),
        (_body_codec(api, api.request, version), body),
    )


def encode_response(api: Api[RequestT, ResponseT], version: int, correlation_id: int, body: ResponseT) -> list[Buffer]:
    """Encodes a response, like `encode_request`, for the broker's side."""
    return write_parts(
        f"{api.name} v{version} response",
        (_header_codec(ResponseHeader, 0, api.has_flexible_response_header(version)), ResponseHeader(correlation_id)),
        (_body_codec(api, api.response, version), body),
    )


def decode_response(api: Api[RequestT, ResponseT], version: int, data: Buffer) -> tuple[int, ResponseT]:
    """Returns the correlation id and the body. Raises ProtocolError unless the data begins with a complete message.

    Bytes after the message are ignored, as in Java's client: a newer broker or a gateway may send some. An ApiVersions response
    with UNSUPPORTED_VERSION is decoded as v0, regardless of the requested `version`. If that fails, it has only the error code.
    """
    view = memoryview(data)
    what = f"{api.name} v{version} response"
    header, offset = read_part(_header_codec(ResponseHeader, 0, api.has_flexible_response_header(version)), view, 0, what)
    # A broker without the requested version of ApiVersions answers in v0 (KIP-511). The error code comes first in every version.
    expected = 0 if api.key is ApiKey.API_VERSIONS and view[offset : offset + 2] == _UNSUPPORTED else version
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
    header, offset = read_part(_header_codec(RequestHeader, 1, api.is_flexible(version)), view, 0, what)
    body, _ = read_part(_body_codec(api, api.request, version), view, offset, what)
    return header, body


def _header_codec(header: type, version: int, flexible: bool) -> Codec:
    """Returns the codec of a header. version: that without tagged fields; the next one has them."""
    return message_codec(header, version + flexible, flexible)


def _body_codec(api: AnyApi, cls: type, version: int) -> Codec:
    if not api.has_version(version):
        spoken = f"v{api.min_version} to v{api.max_version}"
        raise UnsupportedVersionError(f"{api.name} v{version} is not supported; {spoken} are", api=api.name, version=version)
    return message_codec(cls, version, api.is_flexible(version))


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


# Produce requests from prepared parts, which costs a fifth of encoding them field by field.
#
# The codec makes every part: the head once for each version and transactional id, and each topic's name once. What is left for a
# request are counts, partition numbers, and the batches in their own memory.

LAST_BY_NAME: Final = 12
"""The last version that names topics. Later ones have their ids."""

_BY_NAME: Final = PRODUCE.limited_to(PRODUCE.min_version, LAST_BY_NAME)
_PARTITION: Final = struct.Struct(">i")
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_AT: Final = 4  # after the key and the version, in the header of every request


BatchParts: TypeAlias = tuple[int, int, bytes, Sequence[Buffer]]
"""A batch as a request carries it: partition, bytes of the header and of the payload, header, payload."""


class PreparedRequest(NamedTuple):
    """A request whose parts are prepared. `encode` returns its buffers for a version and a correlation id, and raises as
    `encode_request` does.
    """

    encode: Callable[[int, int], list[Buffer]]


class ProduceEncoder:
    """Prepares the parts of Produce requests of one producer. Not thread-safe."""

    def __init__(self, client_id: str, acks: int, timeout_ms: int) -> None:
        self._client_id = client_id
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._versions: dict[int, _PreparedVersion] = {}

    def encode(
        self, transactional_id: str | None, topics: Mapping[str, Sequence[BatchParts]], version: int, correlation_id: int
    ) -> list[Buffer]:
        """Returns the buffers of a request for these batches by topic, at least one. Payloads are the very objects given.

        Raises:
            UnsupportedVersionError: the version is not supported, or has no topic names.
            UsageError: a value does not fit its field.
        """
        prepared = self._versions.get(version)
        if prepared is None or prepared.transactional_id != transactional_id:
            body = ProduceRequest(transactional_id, self._acks, self._timeout_ms)
            prepared = self._versions[version] = _PreparedVersion(_BY_NAME, version, self._client_id, body)
        return prepared.encode(topics, correlation_id)


class _PreparedVersion:
    """The parts that requests of one version and transactional id have in common."""

    __slots__ = ("_end", "_head", "_topics", "_version", "_write_length", "transactional_id")

    def __init__(self, api: AnyApi, version: int, client_id: str, body: ProduceRequest) -> None:
        self.transactional_id = body.transactional_id
        flexible = api.is_flexible(version)
        self._version = version
        self._write_length = (COMPACT_LENGTH if flexible else INT32_LENGTH).write
        self._end = b"\0" if flexible else b""  # no tagged fields
        self._head = self._before_count(b"".join(encode_request(api, version, 0, client_id, body)))
        self._topics: dict[str, bytes] = {}

    def _before_count(self, encoded: bytes) -> bytes:
        """Returns a message that ends with an empty array, up to its count."""
        end = bytearray()
        self._write_length(end, 0)
        end += self._end
        assert encoded.endswith(end)
        return encoded[: -len(end)]

    def _topic(self, name: str) -> bytes:
        codec = message_codec(TopicProduceData, self._version, bool(self._end))
        encoded = write_parts(f"topic {name}", (codec, TopicProduceData(name=name)))
        prepared = self._topics[name] = self._before_count(b"".join(encoded))
        return prepared

    def encode(self, topics: Mapping[str, Sequence[BatchParts]], correlation_id: int) -> list[Buffer]:
        write_length, pack, end = self._write_length, _PARTITION.pack, self._end
        buffers: list[Buffer] = []
        tail = bytearray(self._head)
        _CORRELATION_ID.pack_into(tail, _CORRELATION_ID_AT, correlation_id)
        write_length(tail, len(topics))
        for name, batches in topics.items():
            tail += self._topics.get(name) or self._topic(name)
            write_length(tail, len(batches))
            for partition, size, header, payload in batches:
                tail += pack(partition)
                write_length(tail, size)
                tail += header
                buffers.append(tail)
                buffers += payload
                tail = bytearray(end)
            tail += end
        tail += end
        if tail:
            buffers.append(tail)
        return buffers
