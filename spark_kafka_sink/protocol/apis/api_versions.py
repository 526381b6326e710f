"""ApiVersions (18): the versions of each API that a broker supports. It is the first request on a connection."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import MEGABYTE, Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT16, INT32, INT64, STRING, ArrayOf


@message
class ApiVersionsRequest(Message):
    """A request for the supported versions. With `cluster_id` and `node_id` (KIP-1242) a broker that is another one answers
    REBOOTSTRAP_REQUIRED.

    Name and version consist of letters, digits, '-' and '.', and begin and end with a letter or digit. Otherwise brokers answer
    INVALID_REQUEST.
    """

    client_software_name: str = wire(STRING, since=3, default="", ignorable=True)
    client_software_version: str = wire(STRING, since=3, default="", ignorable=True)
    cluster_id: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    node_id: int = wire(INT32, since=5, default=-1, ignorable=True)


@message
class ApiVersion(Message):
    """The versions of one API, inclusive."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message
class SupportedFeatureKey(Message):
    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message
class FinalizedFeatureKey(Message):
    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@message
class ApiVersionsResponse(Message):
    """The supported versions. `finalized_features` is valid only if `finalized_features_epoch` is not -1."""

    error_code: int = wire(INT16)
    api_keys: Sequence[ApiVersion] = wire(ArrayOf(ApiVersion), default=())
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    supported_features: Sequence[SupportedFeatureKey] = wire(ArrayOf(SupportedFeatureKey), since=3, tag=0, default=())
    finalized_features_epoch: int = wire(INT64, since=3, tag=1, default=-1)
    finalized_features: Sequence[FinalizedFeatureKey] = wire(ArrayOf(FinalizedFeatureKey), since=3, tag=2, default=())
    zk_migration_ready: bool = wire(BOOLEAN, since=3, tag=3, default=False)


API_VERSIONS = Api(ApiKey.API_VERSIONS, 0, 5, 3, ApiVersionsRequest, ApiVersionsResponse, max_response_bytes=MEGABYTE // 2)
