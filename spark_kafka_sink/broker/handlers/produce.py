"""Produce: each partition's batch into its log; acks=0 gets no answer, and a closed connection where something failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.later import answering
from spark_kafka_sink.broker.handlers.produce_partition import ProducePartition, produce_partition
from spark_kafka_sink.broker.handlers.topics_asked import node_endpoints
from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.add_partitions_to_txn_manager import (
    Failures,
    Guards,
    TransactionSupportedOperation,
    operation_of_produce,
    produce_error,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse


def handle_produce(services: BrokerServices, request: Request) -> ProduceResponse | None:
    body: ProduceRequest = request.body
    partitions = [produce_partition(services, request, topic, each) for topic in body.topic_data for each in topic.partition_data]
    headers = [header for each in partitions if (header := each.transactional_header) is not None]
    if not headers:
        return _appended(services, request, partitions)
    operation = operation_of_produce(request.version)
    producer = _one_producer(body, headers)

    def go_on(failures: Failures) -> None:
        for each in partitions:
            code = failures.get(each.topic_partition)
            if code is not None:
                each.error = _not_verified(code, operation)
        with answering(request):
            response = _appended(services, request, partitions)
            if response is not None:
                request.answer(response)

    services.add_partitions_to_txn_manager.add_or_verify_with_patience(
        body.transactional_id or "",
        producer.producer_id,
        producer.producer_epoch,
        lambda: _guards(services, partitions, operation),
        operation,
        go_on,
    )
    return None


def _one_producer(body: ProduceRequest, headers: Sequence[BatchHeader]) -> BatchHeader:
    """As `KafkaApis` and `ReplicaManager.handleProduceAppend` refuse whole requests."""
    if body.transactional_id is None:
        raise ApiException(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len({(header.producer_id, header.producer_epoch) for header in headers}) > 1:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID")
    return headers[0]


def _guards(services: BrokerServices, partitions: Sequence[ProducePartition], operation: TransactionSupportedOperation) -> Guards:
    """Of those whose log knows of no open transaction of the producer: the coordinator must (KIP-890)."""
    supports_bump = operation is TransactionSupportedOperation.ADD_PARTITION
    for each in partitions:
        header = each.transactional_header
        if header is None:
            continue
        try:
            log = services.replica_manager.led(*each.topic_partition).log
            each.guard = log.maybe_start_transaction_verification(
                header.producer_id, header.base_sequence, header.producer_epoch, supports_epoch_bump=supports_bump
            )
        except ApiException as error:
            each.error, each.guard = error, None
    return {each.topic_partition: each.guard for each in partitions if each.guard is not None}


def _not_verified(code: ErrorCode, operation: TransactionSupportedOperation) -> ApiException:
    told = produce_error(code, operation)
    if told is code:
        return ApiException(code)
    text = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
    return ApiException(told, text)


def _appended(services: BrokerServices, request: Request, partitions: Sequence[ProducePartition]) -> ProduceResponse | None:
    body: ProduceRequest = request.body
    answers = [each.append(services, body.acks) for each in partitions]
    if body.acks != 0:
        return _response(services, request, iter(answers))
    # A closed connection is the only way to tell a producer that asked for no answer: it looks for the leaders again.
    if any(answer.error_code for answer in answers):
        request.close_connection()
    else:
        request.answer_nothing()
    return None


def _response(services: BrokerServices, request: Request, answers: Iterator[PartitionProduceResponse]) -> ProduceResponse:
    body: ProduceRequest = request.body
    topics = tuple(
        TopicProduceResponse(topic.name, topic.topic_id, tuple(next(answers) for _ in topic.partition_data))
        for topic in body.topic_data
    )
    leaders = {
        each.current_leader.leader_id for topic in topics for each in topic.partition_responses if each.current_leader is not None
    }
    return ProduceResponse(topics, node_endpoints=node_endpoints(services.cluster.image, leaders, request.listener))
