"""Encodes Produce requests from prepared parts, which costs a fifth of encoding them field by field.

The codec makes every part: the head once for each version and transactional id, and each topic's name once. What is left for a
request are counts, partition numbers, and the batches in their own memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.apis.produce import PRODUCE, ProduceRequest, TopicProduceData
from spark_kafka_sink.protocol.codec import message_codec, write_parts
from spark_kafka_sink.protocol.messages import encode_request
from spark_kafka_sink.protocol.values import COMPACT_LENGTH, INT32_LENGTH
from spark_kafka_sink.protocol.wire_types import Buffer

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
