"""AddPartitionsToTxn (24): partitions that a transaction writes to; from v4 between brokers, for several of them (KIP-890)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT16, INT32, INT64, STRING, ArrayOf


@message
class AddPartitionsToTxnTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class AddPartitionsToTxnTransaction(Message):
    """`verify_only` asks whether the partitions are in the transaction and adds none."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    verify_only: bool = wire(BOOLEAN, default=False)
    topics: Sequence[AddPartitionsToTxnTopic] = wire(ArrayOf(AddPartitionsToTxnTopic), default=())


@message
class AddPartitionsToTxnRequest(Message):
    """Producers send v3 at most, brokers v4 on."""

    transactions: Sequence[AddPartitionsToTxnTransaction] = wire(ArrayOf(AddPartitionsToTxnTransaction), since=4, default=())
    v3_and_below_transactional_id: str = wire(STRING, until=3, default="")
    v3_and_below_producer_id: int = wire(INT64, until=3, default=0)
    v3_and_below_producer_epoch: int = wire(INT16, until=3, default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = wire(ArrayOf(AddPartitionsToTxnTopic), until=3, default=())


@message
class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@message
class AddPartitionsToTxnTopicResult(Message):
    name: str = wire(STRING)
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = wire(
        ArrayOf(AddPartitionsToTxnPartitionResult), default=()
    )


@message
class AddPartitionsToTxnResult(Message):
    transactional_id: str = wire(STRING)
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = wire(ArrayOf(AddPartitionsToTxnTopicResult), default=())


@message
class AddPartitionsToTxnResponse(Message):
    """Up to v3 `results_by_topic_v3_and_below`, from v4 `results_by_transaction`."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=4, default=0, ignorable=True)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = wire(ArrayOf(AddPartitionsToTxnResult), since=4, default=())
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = wire(
        ArrayOf(AddPartitionsToTxnTopicResult), until=3, default=()
    )


ADD_PARTITIONS_TO_TXN = Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
