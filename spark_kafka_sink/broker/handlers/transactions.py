"""Handlers for transactions: producer ids, partitions, offsets, outcomes, and descriptions of transactions and producers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from spark_kafka_sink.broker.acl import AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS
from spark_kafka_sink.broker.cluster.new_topics import check_name
from spark_kafka_sink.broker.handlers.common import check_cluster, check_right, is_allowed, is_allowed_on_any
from spark_kafka_sink.broker.handlers.groups import offsets_partition
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_metadata import (
    BY_NAME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_VERSION_2,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis import list_transactions
from spark_kafka_sink.protocol.apis import transactions as api
from spark_kafka_sink.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode

KNOWS_PRODUCER_FENCED: Final[Mapping[ApiKey, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first version with PRODUCER_FENCED (KIP-588); older ones get INVALID_PRODUCER_EPOCH."""


def _is_coordinator(services: BrokerServices, transactional_id: str) -> bool:
    """Returns whether this broker coordinates the id."""
    # An empty id has no coordinator, and the coordinator refuses it first.
    return not transactional_id or services.cluster.coordinator(CoordinatorType.TRANSACTION, transactional_id) == services.node_id


def _as_understood(code: ErrorCode, request: Request) -> ErrorCode:
    """Returns the code that clients of the request's version know."""
    if code is ErrorCode.PRODUCER_FENCED and request.version < KNOWS_PRODUCER_FENCED[request.api.key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def handle_init_producer_id(services: BrokerServices, request: Request) -> InitProducerIdResponse:
    """Gives an idempotent producer an id (any broker), or a transactional one a new epoch (its coordinator)."""
    body: InitProducerIdRequest = request.body
    if body.transactional_id is not None:
        check_right(services, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    elif not is_allowed_on_any(services, request, AclOperation.WRITE, ResourceType.TOPIC):
        # A client that may write to any topic may be idempotent (KIP-679).
        check_cluster(services, request, AclOperation.IDEMPOTENT_WRITE)
    has_id, has_epoch = body.producer_id != NO_PRODUCER_ID, body.producer_epoch != NO_PRODUCER_EPOCH
    if has_id is not has_epoch:
        raise ApiException(ErrorCode.INVALID_REQUEST)
    expected = ProducerIdAndEpoch(body.producer_id, body.producer_epoch) if has_id else None
    try:
        producer = services.transaction_coordinator.init_producer_id(
            body.transactional_id,
            body.transaction_timeout_ms,
            expected,
            is_coordinator=_is_coordinator(services, body.transactional_id or ""),
        )
    except ApiException as error:
        raise ApiException(_as_understood(error.code, request), error.message) from error
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


_CodeOf = Callable[[str, int], ErrorCode]
_FIRST_OF_BROKERS = 4


def handle_add_partitions_to_txn(services: BrokerServices, request: Request) -> api.AddPartitionsToTxnResponse:
    """Adds partitions to one transaction for its producer (up to v3), or to several for brokers (from v4 on)."""
    body: api.AddPartitionsToTxnRequest = request.body
    if request.version >= _FIRST_OF_BROKERS:
        check_cluster(services, request, AclOperation.CLUSTER_ACTION)
        results = tuple(
            api.AddPartitionsToTxnResult(each.transactional_id, _results(each.topics, _added(services, request, each)))
            for each in body.transactions
        )
        return api.AddPartitionsToTxnResponse(results_by_transaction=results)
    check_right(services, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.v3_and_below_transactional_id)
    only = api.AddPartitionsToTxnTransaction(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )
    return api.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(only.topics, _added(services, request, only)))


def _added(services: BrokerServices, request: Request, transaction: api.AddPartitionsToTxnTransaction) -> _CodeOf:
    """Returns a function that maps a topic and partition to its code."""
    partitions = [(topic.name, int(index)) for topic in transaction.topics for index in topic.partitions]
    refused = _refused(services, request, partitions)
    if refused:
        # If one cannot be added, none is.
        return lambda topic, index: refused.get((topic, index), ErrorCode.OPERATION_NOT_ATTEMPTED)
    coordinator, transactional_id = services.transaction_coordinator, transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    owns = _is_coordinator(services, transactional_id)
    version = TRANSACTION_VERSION_2 if request.version >= _FIRST_OF_BROKERS else 0
    codes: Mapping[tuple[str, int], ErrorCode] = {}
    try:
        if transaction.verify_only:
            codes = coordinator.verify_partitions(transactional_id, producer, partitions, is_coordinator=owns)
        else:
            coordinator.add_partitions(transactional_id, producer, partitions, client_version=version, is_coordinator=owns)
    except ApiException as error:
        told = _as_understood(error.code, request)
        return lambda topic, index: told
    return lambda topic, index: codes.get((topic, index), ErrorCode.NONE)


def _refused(
    services: BrokerServices, request: Request, partitions: Collection[tuple[str, int]]
) -> Mapping[tuple[str, int], ErrorCode]:
    refused = {}
    for topic, index in partitions:
        if request.version < _FIRST_OF_BROKERS and (
            topic in INTERNAL_TOPICS or not is_allowed(services, request, AclOperation.WRITE, ResourceType.TOPIC, topic)
        ):
            refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif services.cluster.image.partition(topic, index) is None:
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _results(topics: Sequence[api.AddPartitionsToTxnTopic], code: _CodeOf) -> tuple[api.AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        api.AddPartitionsToTxnTopicResult(
            topic.name,
            tuple(api.AddPartitionsToTxnPartitionResult(int(index), code(topic.name, int(index))) for index in topic.partitions),
        )
        for topic in topics
    )


def handle_add_offsets_to_txn(services: BrokerServices, request: Request) -> api.AddOffsetsToTxnResponse:
    """Adds the partition of `__consumer_offsets` with the group's offsets to the transaction."""
    body: api.AddOffsetsToTxnRequest = request.body
    try:
        check_right(services, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        check_right(services, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        services.transaction_coordinator.add_partitions(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            [offsets_partition(services, body.group_id)],
            is_coordinator=_is_coordinator(services, body.transactional_id),
        )
    except ApiException as error:
        return api.AddOffsetsToTxnResponse(error_code=_as_understood(error.code, request))
    return api.AddOffsetsToTxnResponse()


_FIRST_OF_VERSION_2 = 5


def handle_end_txn(services: BrokerServices, request: Request) -> api.EndTxnResponse:
    """Ends a transaction. The response is sent when the outcome is decided; the markers follow."""
    body: api.EndTxnRequest = request.body
    try:
        check_right(services, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        renewed = services.transaction_coordinator.end_transaction(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            body.committed,
            client_version=TRANSACTION_VERSION_2 if request.version >= _FIRST_OF_VERSION_2 else 0,
            is_coordinator=_is_coordinator(services, body.transactional_id),
        )
    except ApiException as error:
        return api.EndTxnResponse(error_code=_as_understood(error.code, request))
    return api.EndTxnResponse(producer_id=renewed.producer_id, producer_epoch=renewed.producer_epoch)


def handle_describe_transactions(services: BrokerServices, request: Request) -> api.DescribeTransactionsResponse:
    body: api.DescribeTransactionsRequest = request.body
    states = tuple(_described_transaction(services, request, each) for each in body.transactional_ids)
    return api.DescribeTransactionsResponse(transaction_states=states)


def _described_transaction(services: BrokerServices, request: Request, transactional_id: str) -> api.TransactionState:
    describe = AclOperation.DESCRIBE
    try:
        check_right(services, request, describe, ResourceType.TRANSACTIONAL_ID, transactional_id)
        owns = _is_coordinator(services, transactional_id)
        known = services.transaction_coordinator.describe(transactional_id, is_coordinator=owns)
    except ApiException as error:
        return api.TransactionState(error.code, transactional_id, "", 0, 0, 0, 0)
    by_topic = itertools.groupby(sorted(known.partitions), key=lambda each: each.topic)
    return api.TransactionState(
        ErrorCode.NONE,
        transactional_id,
        known.state.state_name,
        known.timeout_ms,
        known.start_ms,
        known.producer_id,
        known.producer_epoch,
        tuple(
            api.TopicData(topic, tuple(each.partition for each in of_topic))
            for topic, of_topic in by_topic
            if is_allowed(services, request, describe, ResourceType.TOPIC, topic)
        ),
    )


def handle_list_transactions(services: BrokerServices, request: Request) -> ListTransactionsResponse:
    body: ListTransactionsRequest = request.body
    every = services.transaction_coordinator.every()
    is_wanted = _filter(body, services.wall_ms())
    return ListTransactionsResponse(
        unknown_state_filters=tuple(name for name in dict.fromkeys(body.state_filters) if name not in BY_NAME),
        transaction_states=tuple(
            list_transactions.TransactionState(each.transactional_id, each.producer_id, each.state.state_name)
            for each in every
            if is_wanted(each)
            and _is_coordinator(services, each.transactional_id)
            and is_allowed(services, request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ),
    )


def _filter(body: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionMetadata], bool]:
    """Returns the filter of a request. Raises INVALID_REGULAR_EXPRESSION.

    As in Kafka, an unknown state matches nothing, and an id without a transaction counts as running since 1970.
    """
    producers, names = set(map(int, body.producer_id_filters)), set(body.state_filters)
    matches = _matcher(body.transactional_id_pattern) if body.transactional_id_pattern else None

    def is_wanted(metadata: TransactionMetadata) -> bool:
        return (
            (not producers or metadata.producer_id in producers)
            and (not names or metadata.state.state_name in names)
            and (body.duration_filter < 0 or now_ms - metadata.start_ms > body.duration_filter)
            and (matches is None or matches(metadata.transactional_id))
        )

    return is_wanted


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Returns what matches whole ids by RE2, as Kafka does: Python's `re` may take years for a peer's pattern."""
    import pyarrow as pa
    import pyarrow.compute as pc  # which takes 150 ms

    def matches(transactional_id: str) -> bool:
        return bool(pc.match_substring_regex(pa.scalar(transactional_id), rf"\A(?:{pattern})\z").as_py())

    try:
        matches("")
    except pa.ArrowInvalid as error:
        raise ApiException(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    return matches


def handle_describe_producers(services: BrokerServices, request: Request) -> api.DescribeProducersResponse:
    """Returns the recent producers of a partition, as its leader knows them (KIP-664)."""
    body: api.DescribeProducersRequest = request.body
    return api.DescribeProducersResponse(topics=tuple(_producers_of_topic(services, request, topic) for topic in body.topics))


def _producers_of_topic(services: BrokerServices, request: Request, topic: api.TopicRequest) -> api.TopicResponse:
    try:
        check_name(topic.name)
        check_right(services, request, AclOperation.READ, ResourceType.TOPIC, topic.name)
        if topic.name not in services.cluster.image.topics:
            text = "This server does not host this topic-partition."
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    except ApiException as error:
        code, message = error.code, error.message
        return api.TopicResponse(
            topic.name, tuple(api.PartitionResponse(index, code, message) for index in topic.partition_indexes)
        )
    return api.TopicResponse(
        topic.name, tuple(_producers_of_partition(services, topic.name, index) for index in topic.partition_indexes)
    )


def _producers_of_partition(services: BrokerServices, topic: str, index: int) -> api.PartitionResponse:
    try:
        log = services.replica_manager.led(topic, index).log
    except ApiException as error:
        return api.PartitionResponse(index, error.code, error.message)
    producers = tuple(api.ProducerState(*producer) for producer in log.active_producers())
    return api.PartitionResponse(index, ErrorCode.NONE, None, producers)
