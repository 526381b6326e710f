"""TxnOffsetCommit (28): offsets of a consumer group that count when the transaction commits."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING, ArrayOf


@message
class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable_since=0, default="")


@message
class TxnOffsetCommitRequestTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[TxnOffsetCommitRequestPartition] = wire(ArrayOf(TxnOffsetCommitRequestPartition), default=())


@message
class TxnOffsetCommitRequest(Message):
    """From v3 the consumer's generation and member fence it as they do OffsetCommit (KIP-447)."""

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, since=3, default=-1)
    member_id: str = wire(STRING, since=3, default="")
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = wire(ArrayOf(TxnOffsetCommitRequestTopic), default=())


@message
class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class TxnOffsetCommitResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[TxnOffsetCommitResponsePartition] = wire(ArrayOf(TxnOffsetCommitResponsePartition), default=())


@message
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[TxnOffsetCommitResponseTopic] = wire(ArrayOf(TxnOffsetCommitResponseTopic), default=())


TXN_OFFSET_COMMIT = Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse)
