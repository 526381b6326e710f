"""TxnOffsetCommit: offsets of a group that count when the producer's transaction commits."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.coordinator_partition import partition_for
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC
from spark_kafka_sink.broker.group.group_log import client_code
from spark_kafka_sink.broker.group.offset_metadata_manager import Codes, Committer, Offsets, TransactionalProducer
from spark_kafka_sink.broker.group.offsets import TopicPartition
from spark_kafka_sink.broker.handlers.committed_offsets import committed, existing, offsets_of
from spark_kafka_sink.broker.handlers.group_ids import check_group
from spark_kafka_sink.broker.handlers.later import answering
from spark_kafka_sink.broker.log.log_types import NO_SEQUENCE
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.add_partitions_to_txn_manager import (
    Failures,
    Guards,
    TransactionSupportedOperation,
    operation_of_txn_offset_commit,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handle_txn_offset_commit(services: BrokerServices, request: Request) -> TxnOffsetCommitResponse | None:
    body = request.body
    assert isinstance(body, TxnOffsetCommitRequest)
    offsets = offsets_of(body.topics, services.wall_ms())
    if not existing(services.cluster.image, offsets):
        return _response(body, dict.fromkeys(offsets, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    try:
        check_group(services, body.group_id)
        _verify(services, request, body, offsets)
    except ApiException as error:
        return _failed(services, body, offsets, error.code)
    return None


def _guards(services: BrokerServices, body: TxnOffsetCommitRequest, operation: TransactionSupportedOperation) -> Guards:
    """None where the transaction has offsets of this partition already."""
    guard = services.replica_manager.led(*_partition(services, body)).log.maybe_start_transaction_verification(
        body.producer_id,
        NO_SEQUENCE,
        body.producer_epoch,
        supports_epoch_bump=operation is TransactionSupportedOperation.ADD_PARTITION,
    )
    return {} if guard is None else {_partition(services, body): guard}


def _partition(services: BrokerServices, body: TxnOffsetCommitRequest) -> tuple[str, int]:
    topic = services.cluster.internal_topic(GROUP_METADATA_TOPIC)
    return topic.name, partition_for(body.group_id, len(topic.partitions))


def _verify(services: BrokerServices, request: Request, body: TxnOffsetCommitRequest, offsets: Offsets) -> None:
    """The transaction's coordinator must know it; from v5 on it takes the partition in by that (KIP-890)."""
    operation = operation_of_txn_offset_commit(request.version)
    guards: dict[tuple[str, int], VerificationGuard] = {}

    def begin() -> Guards:
        guards.clear()
        guards.update(_guards(services, body, operation))
        return dict(guards)

    def go_on(failures: Failures) -> None:
        with answering(request):
            if failures:
                response = _failed(services, body, offsets, next(iter(failures.values())))
            else:
                response = _committed(services, body, offsets, next(iter(guards.values()), None))
            request.answer(response)

    services.add_partitions_to_txn_manager.add_or_verify_with_patience(
        body.transactional_id, body.producer_id, body.producer_epoch, begin, operation, go_on
    )


def _committed(
    services: BrokerServices, body: TxnOffsetCommitRequest, offsets: Offsets, guard: VerificationGuard | None
) -> TxnOffsetCommitResponse:
    by = Committer(body.group_id, body.generation_id, body.member_id, body.group_instance_id)
    producer = TransactionalProducer(body.producer_id, body.producer_epoch, guard)
    coordinator = services.group_coordinator
    codes = committed(services, offsets, lambda known: coordinator.commit_transactional_offsets(by, producer, known))
    return _response(body, codes)


def _failed(services: BrokerServices, body: TxnOffsetCommitRequest, offsets: Offsets, code: ErrorCode) -> TxnOffsetCommitResponse:
    """All that could have been committed was not."""

    def refuse(_: Offsets) -> Codes:
        raise ApiException(client_code(code))

    return _response(body, committed(services, offsets, refuse))


def _response(body: TxnOffsetCommitRequest, codes: Codes) -> TxnOffsetCommitResponse:
    def of_partition(topic: str, index: int) -> TxnOffsetCommitResponsePartition:
        return TxnOffsetCommitResponsePartition(index, codes[TopicPartition(topic, index)])

    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                topic.name, tuple(of_partition(topic.name, each.partition_index) for each in topic.partitions)
            )
            for topic in body.topics
        )
    )
