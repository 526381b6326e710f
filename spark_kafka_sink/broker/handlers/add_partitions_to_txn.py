"""AddPartitionsToTxn: partitions of one transaction from its producer (up to v3), of several from brokers (from v4 on)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS
from spark_kafka_sink.broker.handlers.transactional_ids import as_understood, is_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_metadata import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

Code = Callable[[str, int], ErrorCode]
_FIRST_OF_BROKERS = 4


def handle_add_partitions_to_txn(services: BrokerServices, request: Request) -> AddPartitionsToTxnResponse:
    body = request.body
    assert isinstance(body, AddPartitionsToTxnRequest)
    if request.version >= _FIRST_OF_BROKERS:
        results = tuple(
            AddPartitionsToTxnResult(each.transactional_id, _results(each.topics, _added(services, request, each)))
            for each in body.transactions
        )
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    only = AddPartitionsToTxnTransaction(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(only.topics, _added(services, request, only)))


def _added(services: BrokerServices, request: Request, transaction: AddPartitionsToTxnTransaction) -> Code:
    """Says of each partition how it went."""
    partitions = [(topic.name, int(index)) for topic in transaction.topics for index in topic.partitions]
    refused = _refused(services, request, partitions)
    if refused:
        # One that cannot be added keeps the others out.
        return lambda topic, index: refused.get((topic, index), ErrorCode.OPERATION_NOT_ATTEMPTED)
    try:
        codes = _asked(services, request, transaction, partitions)
    except ApiException as error:
        told = as_understood(error.code, request)
        return lambda topic, index: told
    return lambda topic, index: codes.get((topic, index), ErrorCode.NONE)


def _refused(
    services: BrokerServices, request: Request, partitions: Collection[tuple[str, int]]
) -> Mapping[tuple[str, int], ErrorCode]:
    refused = {}
    for topic, index in partitions:
        if request.version < _FIRST_OF_BROKERS and topic in INTERNAL_TOPICS:
            refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif services.cluster.image.partition(topic, index) is None:
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _asked(
    services: BrokerServices,
    request: Request,
    transaction: AddPartitionsToTxnTransaction,
    partitions: Collection[tuple[str, int]],
) -> Mapping[tuple[str, int], ErrorCode]:
    coordinator = services.transaction_coordinator
    transactional_id = transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    owns = is_coordinator(services, transactional_id)
    if transaction.verify_only:
        return coordinator.verify_partitions(transactional_id, producer, partitions, is_coordinator=owns)
    version = TRANSACTION_VERSION_2 if request.version >= _FIRST_OF_BROKERS else 0
    coordinator.add_partitions(transactional_id, producer, partitions, client_version=version, is_coordinator=owns)
    return {}


def _results(topics: Sequence[AddPartitionsToTxnTopic], code: Code) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            topic.name,
            tuple(AddPartitionsToTxnPartitionResult(int(index), code(topic.name, int(index))) for index in topic.partitions),
        )
        for topic in topics
    )
