"""ApiVersions and Metadata: what a client asks a broker first."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import MEGABYTE, Api, ApiKey
from spark_kafka_sink.protocol.fields import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    ArrayOf,
    Message,
    message,
    wire,
)

# ApiVersions (18): the versions of each API that a broker supports. It is the first request on a connection.


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


# Metadata (3): the brokers of a cluster, its topics and the leader of each partition.

NO_AUTHORIZED_OPERATIONS = -(2**31)
"""The value of authorized operations that were not requested."""


@message
class MetadataRequestTopic(Message):
    """A topic by id (from v12 on; `name` is None) or by name (`topic_id` is ZERO_UUID). v10 and v11 work by name only."""

    topic_id: uuid.UUID = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    name: str | None = wire(STRING, nullable_since=10, default=None)


@message
class MetadataRequest(Message):
    """A request for metadata. `topics`: None requests all topics, an empty sequence none (only brokers). v0 has no None: empty is
    all.
    """

    topics: Sequence[MetadataRequestTopic] | None = wire(ArrayOf(MetadataRequestTopic), nullable_since=1)
    allow_auto_topic_creation: bool = wire(BOOLEAN, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOLEAN, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire(BOOLEAN, since=8, default=False)


@message
class MetadataResponseBroker(Message):
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, since=1, nullable_since=1, default=None, ignorable=True)


@message
class MetadataResponsePartition(Message):
    """A partition. `leader_id` is -1 if there is no leader, `leader_epoch` is -1 if the version has none."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: Sequence[int] = wire(ArrayOf(INT32), default=())
    isr_nodes: Sequence[int] = wire(ArrayOf(INT32), default=())
    offline_replicas: Sequence[int] = wire(ArrayOf(INT32), since=5, default=(), ignorable=True)


@message
class MetadataResponseTopic(Message):
    """A topic. `name` is None for an unknown topic requested by id."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable_since=12)
    topic_id: uuid.UUID = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    is_internal: bool = wire(BOOLEAN, since=1, default=False, ignorable=True)
    partitions: Sequence[MetadataResponsePartition] = wire(ArrayOf(MetadataResponsePartition), default=())
    topic_authorized_operations: int = wire(INT32, since=8, default=NO_AUTHORIZED_OPERATIONS)


@message
class MetadataResponse(Message):
    """The response. `error_code` (v13) is the top-level one: REBOOTSTRAP_REQUIRED (KIP-1102) or 0."""

    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    brokers: Sequence[MetadataResponseBroker] = wire(ArrayOf(MetadataResponseBroker), default=())
    cluster_id: str | None = wire(STRING, since=2, nullable_since=2, default=None, ignorable=True)
    controller_id: int = wire(INT32, since=1, default=-1, ignorable=True)
    topics: Sequence[MetadataResponseTopic] = wire(ArrayOf(MetadataResponseTopic), default=())
    cluster_authorized_operations: int = wire(INT32, since=8, until=10, default=NO_AUTHORIZED_OPERATIONS)
    error_code: int = wire(INT16, since=13, default=0, ignorable=True)


_TOO_LARGE = (
    "if it is a Metadata response, this client uses topics with more than about 90,000 partitions in all: write to fewer topics"
    " per producer, or to topics with fewer partitions"
)

METADATA = Api(
    ApiKey.METADATA, 0, 13, 9, MetadataRequest, MetadataResponse, max_response_bytes=4 * MEGABYTE, too_large=_TOO_LARGE
)
"""A partition with three replicas has 42 to 45 bytes, so the response has room for 90,000, of all topics that one client uses. A
response of 50,000 takes 0.3 s of CPU. A larger limit would let a hostile broker take more than 64 MB (tests/limits.py)."""
