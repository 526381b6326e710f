"""DescribeCluster and DescribeLogDirs: the brokers of a cluster and their log folders."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.apis.metadata import NO_AUTHORIZED_OPERATIONS
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT8, INT16, INT32, INT64, STRING, ArrayOf

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
