"""DescribeCluster (60): the brokers or the controllers of a cluster (KIP-700)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.metadata import NO_AUTHORIZED_OPERATIONS
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT8, INT16, INT32, STRING, ArrayOf


@message
class DescribeClusterRequest(Message):
    """`endpoint_type`: 1 brokers, 2 controllers (KIP-919)."""

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
