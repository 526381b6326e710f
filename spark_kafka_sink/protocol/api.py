"""An API as a value: its key, the versions spoken here, and the classes of its request and response."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from spark_kafka_sink.protocol.fields import Message

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class ApiKey(IntEnum):
    """The number of an API in a request header."""

    PRODUCE = 0
    METADATA = 3
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22


@dataclass(frozen=True, slots=True)
class Api(Generic[RequestT, ResponseT]):
    """`min_version` and `max_version` are what this code speaks, inclusive; from `flexible_from` on there are tagged fields."""

    key: ApiKey
    min_version: int
    max_version: int
    flexible_from: int
    request: type[RequestT]
    response: type[ResponseT]

    @property
    def name(self) -> str:
        return self.key.name

    def has_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def has_flexible_response_header(self, version: int) -> bool:
        """Never for ApiVersions: a client must read that answer before it knows what the broker speaks (KIP-511)."""
        return self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS
