"""Administration of a cluster: its brokers and their log folders, its ACLs, and AlterConfigs."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.apis.metadata import NO_AUTHORIZED_OPERATIONS
from spark_kafka_sink.protocol.fields import BOOLEAN, INT8, INT16, INT32, INT64, STRING, ArrayOf, Message, message, wire

# DescribeCluster (60): the brokers or the controllers of a cluster (KIP-700).


@message
class DescribeClusterRequest(Message):
    """A request for the nodes of a cluster. `endpoint_type`: 1 brokers, 2 controllers (KIP-919)."""

    include_cluster_authorized_operations: bool = wire(BOOLEAN)
    endpoint_type: int = wire(INT8, since=1, default=1)
    include_fenced_brokers: bool = wire(BOOLEAN, since=2, default=False)


@message
class DescribeClusterBroker(Message):
    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable_since=0, default=None)
    is_fenced: bool = wire(BOOLEAN, since=2, default=False)


@message
class DescribeClusterResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    endpoint_type: int = wire(INT8, since=1, default=1)
    cluster_id: str = wire(STRING, default="")
    controller_id: int = wire(INT32, default=-1)
    brokers: Sequence[DescribeClusterBroker] = wire(ArrayOf(DescribeClusterBroker), default=())
    cluster_authorized_operations: int = wire(INT32, default=NO_AUTHORIZED_OPERATIONS)


DESCRIBE_CLUSTER = Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, DescribeClusterRequest, DescribeClusterResponse)


# DescribeLogDirs (35): the folders of a broker and the sizes of their partitions (KIP-113, KIP-827).


@message
class DescribableLogDirTopic(Message):
    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class DescribeLogDirsRequest(Message):
    """A request for log folders. `topics` is None for all partitions of the broker."""

    topics: Sequence[DescribableLogDirTopic] | None = wire(ArrayOf(DescribableLogDirTopic), nullable_since=0, default=())


@message
class DescribeLogDirsPartition(Message):
    """A partition in a folder. `partition_size` is in bytes. `offset_lag`: the distance from the high watermark to the end."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOLEAN, default=False)


@message
class DescribeLogDirsTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[DescribeLogDirsPartition] = wire(ArrayOf(DescribeLogDirsPartition), default=())


@message
class DescribeLogDirsResult(Message):
    """A folder. `total_bytes` and `usable_bytes` are those of the volume; -1 if unknown."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: Sequence[DescribeLogDirsTopic] = wire(ArrayOf(DescribeLogDirsTopic), default=())
    total_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)


@message
class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=3, default=0, ignorable=True)
    results: Sequence[DescribeLogDirsResult] = wire(ArrayOf(DescribeLogDirsResult), default=())


DESCRIBE_LOG_DIRS = Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, 2, DescribeLogDirsRequest, DescribeLogDirsResponse)


# ACLs. Types and operations are Kafka's codes. v0, which has no patterns, is not supported; Kafka 4 has removed it.

# DescribeAcls (29): the ACLs that match a filter, by resource.


@message
class DescribeAclsRequest(Message):
    """A filter. None and the code of ANY match everything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class AclDescription(Message):
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DescribeAclsResource(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    acls: Sequence[AclDescription] = wire(ArrayOf(AclDescription), default=())


@message
class DescribeAclsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    resources: Sequence[DescribeAclsResource] = wire(ArrayOf(DescribeAclsResource), default=())


DESCRIBE_ACLS = Api(ApiKey.DESCRIBE_ACLS, 1, 3, 2, DescribeAclsRequest, DescribeAclsResponse)


# CreateAcls (30)


@message
class AclCreation(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class CreateAclsRequest(Message):
    creations: Sequence[AclCreation] = wire(ArrayOf(AclCreation))


@message
class AclCreationResult(Message):
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)


@message
class CreateAclsResponse(Message):
    """The result of CreateAcls. `results` are in the order of the request."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[AclCreationResult] = wire(ArrayOf(AclCreationResult), default=())


CREATE_ACLS = Api(ApiKey.CREATE_ACLS, 1, 3, 2, CreateAclsRequest, CreateAclsResponse)


# DeleteAcls (31)


@message
class DeleteAclsFilter(Message):
    """A filter, with the fields of DescribeAclsRequest."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DeleteAclsRequest(Message):
    filters: Sequence[DeleteAclsFilter] = wire(ArrayOf(DeleteAclsFilter))


@message
class DeleteAclsMatchingAcl(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DeleteAclsFilterResult(Message):
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    matching_acls: Sequence[DeleteAclsMatchingAcl] = wire(ArrayOf(DeleteAclsMatchingAcl), default=())


@message
class DeleteAclsResponse(Message):
    """The result of DeleteAcls. `filter_results` are in the order of the request's filters."""

    throttle_time_ms: int = wire(INT32, default=0)
    filter_results: Sequence[DeleteAclsFilterResult] = wire(ArrayOf(DeleteAclsFilterResult), default=())


DELETE_ACLS = Api(ApiKey.DELETE_ACLS, 1, 3, 2, DeleteAclsRequest, DeleteAclsResponse)


# AlterConfigs (33): replaces all configs of a resource. IncrementalAlterConfigs is its successor.


@message
class AlterableConfig(Message):
    """A config to set. The value None stands for the default."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@message
class AlterConfigsResource(Message):
    """A resource and its configs. `resource_type` has the codes of DescribeConfigs."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[AlterableConfig] = wire(ArrayOf(AlterableConfig), default=())


@message
class AlterConfigsRequest(Message):
    resources: Sequence[AlterConfigsResource] = wire(ArrayOf(AlterConfigsResource), default=())
    validate_only: bool = wire(BOOLEAN, default=False)


@message
class AlterConfigsResourceResponse(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message
class AlterConfigsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[AlterConfigsResourceResponse] = wire(ArrayOf(AlterConfigsResourceResponse), default=())


ALTER_CONFIGS = Api(ApiKey.ALTER_CONFIGS, 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse)
