"""Produce and InitProducerId: record batches, and the producer id and epoch of idempotent and transactional ones."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import MEGABYTE, Api, ApiKey
from spark_kafka_sink.protocol.fields import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    ZERO_UUID,
    ArrayOf,
    Message,
    Records,
    message,
    wire,
)

# Produce (0): record batches for partitions, and the offset of each batch. From v13 on, topics have ids (KIP-516).


@message
class PartitionProduceData(Message):
    index: int = wire(INT32)
    records: Records | None = wire(RECORDS, nullable_since=0)


@message
class TopicProduceData(Message):
    """A topic, by `name` up to v12 and by `topic_id` from v13 on. The other one is not sent."""

    name: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partition_data: Sequence[PartitionProduceData] = wire(ArrayOf(PartitionProduceData), default=())


@message
class ProduceRequest(Message):
    """A request. `acks`: 0 none (and no response), 1 the leader, -1 all in-sync replicas, for which the broker waits
    `timeout_ms`.
    """

    transactional_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)
    acks: int = wire(INT16, default=-1)
    timeout_ms: int = wire(INT32, default=30_000)
    topic_data: Sequence[TopicProduceData] = wire(ArrayOf(TopicProduceData), default=())


@message
class BatchIndexAndErrorMessage(Message):
    """A record that caused its batch to be rejected (KIP-467)."""

    batch_index: int = wire(INT32)
    batch_index_error_message: str | None = wire(STRING, nullable_since=0, default=None)


@message
class LeaderIdAndEpoch(Message):
    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@message
class PartitionProduceResponse(Message):
    """The result of a partition. Offsets are -1 if unknown; `current_leader` (KIP-951) is None if the broker did not send it."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, since=2, default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    record_errors: Sequence[BatchIndexAndErrorMessage] = wire(
        ArrayOf(BatchIndexAndErrorMessage), since=8, default=(), ignorable=True
    )
    error_message: str | None = wire(STRING, since=8, nullable_since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = wire(LeaderIdAndEpoch, since=10, tag=0, default=None)


@message
class TopicProduceResponse(Message):
    name: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partition_responses: Sequence[PartitionProduceResponse] = wire(ArrayOf(PartitionProduceResponse), default=())


@message
class NodeEndpoint(Message):
    """The address of a leader in a `current_leader` (KIP-951)."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable_since=0, default=None)


@message
class ProduceResponse(Message):
    responses: Sequence[TopicProduceResponse] = wire(ArrayOf(TopicProduceResponse), default=())
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    node_endpoints: Sequence[NodeEndpoint] = wire(ArrayOf(NodeEndpoint), since=10, tag=0, default=())


PRODUCE = Api(ApiKey.PRODUCE, 3, 13, 9, ProduceRequest, ProduceResponse, max_response_bytes=4 * MEGABYTE)
"""v3 is the first version that accepts record batches of magic 2."""


# InitProducerId (22): the producer id and epoch of idempotent and transactional batches.


@message
class InitProducerIdRequest(Message):
    """A request for a producer id. `producer_id` and `producer_epoch` are the current ones, to bump the epoch (KIP-360); -1:
    none.

    `transaction_timeout_ms` is used only with a transactional id; Java sends 2^31 - 1 without one.
    """

    transactional_id: str | None = wire(STRING, nullable_since=0, default=None)
    transaction_timeout_ms: int = wire(INT32, default=2**31 - 1)
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)


@message
class InitProducerIdResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16, default=0)


INIT_PRODUCER_ID = Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2, InitProducerIdRequest, InitProducerIdResponse)
