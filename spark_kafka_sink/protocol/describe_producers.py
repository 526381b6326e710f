"""DescribeProducers (61): the producers that a partition's leader knows the state of (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING, ArrayOf


@message
class TopicRequest(Message):
    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class DescribeProducersRequest(Message):
    topics: Sequence[TopicRequest] = wire(ArrayOf(TopicRequest), default=())


@message
class ProducerState(Message):
    """-1 where unknown; `current_txn_start_offset` is -1 outside a transaction."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32, default=0)
    current_txn_start_offset: int = wire(INT64, default=-1)


@message
class PartitionResponse(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    active_producers: Sequence[ProducerState] = wire(ArrayOf(ProducerState), default=())


@message
class TopicResponse(Message):
    name: str = wire(STRING)
    partitions: Sequence[PartitionResponse] = wire(ArrayOf(PartitionResponse), default=())


@message
class DescribeProducersResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[TopicResponse] = wire(ArrayOf(TopicResponse), default=())


DESCRIBE_PRODUCERS = Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse)
