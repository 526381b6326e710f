"""The transaction requests of a producer, and KIP-664. ListTransactions has its own file."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import MEGABYTE, Api, ApiKey
from spark_kafka_sink.protocol.fields import BOOLEAN, INT16, INT32, INT64, STRING, ArrayOf, Message, message, wire

# AddPartitionsToTxn (24): partitions of a transaction; from v4 on between brokers, for several transactions (KIP-890).


@message
class AddPartitionsToTxnTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class AddPartitionsToTxnTransaction(Message):
    """A transaction. `verify_only` checks whether the partitions are in it and adds none."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    verify_only: bool = wire(BOOLEAN, default=False)
    topics: Sequence[AddPartitionsToTxnTopic] = wire(ArrayOf(AddPartitionsToTxnTopic), default=())


@message
class AddPartitionsToTxnRequest(Message):
    """A request. Producers send at most v3, brokers v4 or later."""

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
    """The response: up to v3 `results_by_topic_v3_and_below`, from v4 on `results_by_transaction`."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=4, default=0, ignorable=True)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = wire(ArrayOf(AddPartitionsToTxnResult), since=4, default=())
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = wire(
        ArrayOf(AddPartitionsToTxnTopicResult), until=3, default=()
    )


ADD_PARTITIONS_TO_TXN = Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)


# AddOffsetsToTxn (25): announces that a transaction will commit offsets of a consumer group.


@message
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@message
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)


ADD_OFFSETS_TO_TXN = Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)


# TxnOffsetCommit (28): offsets of a consumer group that take effect when the transaction commits.


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
    """A commit. From v3 on, the consumer's generation and member id fence it as in OffsetCommit (KIP-447)."""

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


# EndTxn (26): commits or aborts a transaction.


@message
class EndTxnRequest(Message):
    """A request to end a transaction. `committed`: False aborts."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOLEAN)


@message
class EndTxnResponse(Message):
    """The response. From v5 on, every end bumps the epoch (KIP-890): id and epoch for the next transaction, -1 after an error."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    producer_id: int = wire(INT64, since=5, default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, since=5, default=-1, ignorable=True)


END_TXN = Api(ApiKey.END_TXN, 0, 5, 3, EndTxnRequest, EndTxnResponse)


# DescribeTransactions (65): a coordinator's view of transactional ids (KIP-664).


@message
class DescribeTransactionsRequest(Message):
    transactional_ids: Sequence[str] = wire(ArrayOf(STRING), default=())


@message
class TopicData(Message):
    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class TransactionState(Message):
    """A transaction. `transaction_start_time_ms` is -1 if no transaction is open."""

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


DESCRIBE_TRANSACTIONS = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    0,
    0,
    0,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    max_response_bytes=3 * MEGABYTE // 2,
)
"""A partition of a transaction has 4 bytes, so the response has room for 390,000."""


# DescribeProducers (61): the producers known to a partition's leader (KIP-664).


@message
class TopicRequest(Message):
    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class DescribeProducersRequest(Message):
    topics: Sequence[TopicRequest] = wire(ArrayOf(TopicRequest), default=())


@message
class ProducerState(Message):
    """A producer. Values are -1 if unknown; `current_txn_start_offset` is -1 outside a transaction."""

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


DESCRIBE_PRODUCERS = Api(
    ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse, max_response_bytes=3 * MEGABYTE // 2
)
"""A producer has about 40 bytes, so the response has room for 39,000."""
