"""An API as a value: its key, the supported versions, and the classes of its request and response."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar

from spark_kafka_sink.protocol.fields import LATEST, Message

NEVER_FLEXIBLE: Final = LATEST
"""A value of `flexible_from`: no version has tagged fields."""

MEGABYTE: Final = 1024 * 1024

USUAL_RESPONSE_BYTES: Final = MEGABYTE
"""The limit for a response of most APIs. As Python objects, the smallest elements take up to 24 times their bytes."""

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class ApiKey(IntEnum):
    """The number of an API in a request header."""

    @property
    def kafka_name(self) -> str:
        """Kafka's name for the API, such as "InitProducerId"."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72


@dataclass(frozen=True, slots=True)
class Api(Generic[RequestT, ResponseT]):
    """An API. `min_version` and `max_version` are the supported versions, inclusive. Versions from `flexible_from` on have tagged
    fields.

    max_response_bytes: a larger response is refused before it is read. The limit keeps what a hostile broker can make a client
    spend on one response below 64 MB and a second. Java's client has no limit, and librdkafka's is 100 MB for all.
    too_large: what to do about such a response, for its error.
    """

    key: ApiKey
    min_version: int
    max_version: int
    flexible_from: int
    request: type[RequestT]
    response: type[ResponseT]
    max_response_bytes: int = USUAL_RESPONSE_BYTES
    too_large: str = ""

    @property
    def name(self) -> str:
        return self.key.name

    def limited_to(self, min_version: int, max_version: int) -> Api[RequestT, ResponseT]:
        """Returns the same API with fewer versions, for a broker that serves no others."""
        return dataclasses.replace(
            self, min_version=max(min_version, self.min_version), max_version=min(max_version, self.max_version)
        )

    def has_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def has_flexible_response_header(self, version: int) -> bool:
        """Returns whether the response header has tagged fields.

        That of ApiVersions never has any: a client must read it before it knows the broker's versions (KIP-511).
        """
        return self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS


AnyApi: TypeAlias = Api[Any, Any]
