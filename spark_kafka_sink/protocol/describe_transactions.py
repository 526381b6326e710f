"""DescribeTransactions (65): what a coordinator knows of transactional ids (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING, ArrayOf


@message
class DescribeTransactionsRequest(Message):
    transactional_ids: Sequence[str] = wire(ArrayOf(STRING), default=())


@message
class TopicData(Message):
    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class TransactionState(Message):
    """`transaction_start_time_ms` is -1 where no transaction runs."""

    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: Sequence[TopicData] = wire(ArrayOf(TopicData), default=())


@message
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    transaction_states: Sequence[TransactionState] = wire(ArrayOf(TransactionState), default=())


DESCRIBE_TRANSACTIONS = Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0, DescribeTransactionsRequest, DescribeTransactionsResponse)
