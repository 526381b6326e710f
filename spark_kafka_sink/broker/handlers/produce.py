"""The handler for Produce, which appends batches to logs. acks=0 gets no response; after an error its connection is closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.broker.acl import AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS
from spark_kafka_sink.broker.handlers.common import check_right, current_leader, deferred_response, node_endpoints, topic_name
from spark_kafka_sink.broker.log.batch import BatchHeader, read_header
from spark_kafka_sink.broker.log.log_validator import only_batch
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.add_partitions_to_txn_manager import (
    Failures,
    Guards,
    TransactionSupportedOperation,
    operation_of,
    produce_error,
)
from spark_kafka_sink.protocol.apis import produce as api
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Buffer
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec


def handle_produce(services: BrokerServices, request: Request) -> api.ProduceResponse | None:
    body: api.ProduceRequest = request.body
    partitions = [
        _produce_partition(services, request, topic, each) for topic in body.topic_data for each in topic.partition_data
    ]
    # Requests are refused as a whole as in `KafkaApis` and `ReplicaManager.handleProduceAppend`.
    if any(each.header is not None and each.header.is_transactional for each in partitions):
        if body.transactional_id is None:
            raise ApiException(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        check_right(services, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    headers = [header for each in partitions if (header := each.transactional_header) is not None]
    if body.transactional_id is None or not headers:
        return _appended(services, request, partitions)
    if len({(header.producer_id, header.producer_epoch) for header in headers}) > 1:
        raise ApiException(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID")
    operation = operation_of(request.version, generic_since=11)

    def go_on(failures: Failures) -> None:
        for each in partitions:
            code = failures.get(each.topic_partition)
            if code is not None:
                told = produce_error(code, operation)
                text = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
                each.error = ApiException(told, None if told is code else text)
        with deferred_response(request):
            response = _appended(services, request, partitions)
            if response is not None:
                request.answer(response)

    services.add_partitions_to_txn_manager.add_or_verify_with_patience(
        body.transactional_id,
        headers[0].producer_id,
        headers[0].producer_epoch,
        lambda: _guards(services, partitions, operation),
        operation,
        go_on,
    )
    return None


def _guards(services: BrokerServices, partitions: Sequence[ProducePartition], operation: TransactionSupportedOperation) -> Guards:
    """Returns guards for partitions without an open transaction of the producer, which the coordinator must confirm (KIP-890)."""
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


def _appended(services: BrokerServices, request: Request, partitions: Sequence[ProducePartition]) -> api.ProduceResponse | None:
    body: api.ProduceRequest = request.body
    answers = [each.append(services, body.acks) for each in partitions]
    if body.acks == 0:
        # Only a closed connection can tell a producer that expects no response to look for the leaders again.
        if any(answer.error_code for answer in answers):
            request.close_connection()
        else:
            request.answer_nothing()
        return None
    in_order = iter(answers)
    topics = tuple(
        api.TopicProduceResponse(topic.name, topic.topic_id, tuple(next(in_order) for _ in topic.partition_data))
        for topic in body.topic_data
    )
    leaders = {
        each.current_leader.leader_id for topic in topics for each in topic.partition_responses if each.current_leader is not None
    }
    return api.ProduceResponse(topics, node_endpoints=node_endpoints(services.cluster.image, leaders, request.listener))


_ACKS = (-1, 0, 1)
_FIRST_BY_ID = 13
_FIRST_WITH_ZSTD = 7
# Kafka's AdminUtils.ADMIN_CLIENT_ID: Kafka's own tools may repair internal topics.
_ADMIN_CLIENT_ID = "__admin_client"
# The errors that `ReplicaManager.appendToLocalLog` handles separately.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


@dataclass(slots=True)
class ProducePartition:
    """One partition of a Produce.

    `header`: the header of its first batch, or None. `error`: the reason for its refusal. `guard`: lets the log accept the first
    records of a transaction.
    """

    topic: str
    index: int
    records: Buffer
    header: BatchHeader | None
    error: ApiException | None = None
    guard: VerificationGuard | None = None

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.index

    @property
    def transactional_header(self) -> BatchHeader | None:
        """The header if the batch is part of a transaction and not refused yet, otherwise None."""
        header = self.header
        return header if header is not None and header.is_transactional and self.error is None else None

    def append(self, services: BrokerServices, acks: int) -> api.PartitionProduceResponse:
        if self.error is not None:
            return self._failed(services, self.error, self.error.message)
        try:
            info = services.replica_manager.append(self.topic, self.index, self.records, acks, guard=self.guard)
        except ApiException as error:
            start = -1 if error.code in _WITHOUT_LOG_START else services.replica_manager.log_start_offset(*self.topic_partition)
            return self._failed(services, error, error.message if error.record_errors else None, start)
        return api.PartitionProduceResponse(
            index=self.index,
            error_code=ErrorCode.NONE,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )

    def _failed(
        self, services: BrokerServices, error: ApiException, message: str | None, log_start_offset: int = -1
    ) -> api.PartitionProduceResponse:
        """Returns an error. Kafka adds a message only for invalid records and for transactions that it cannot verify."""
        moved = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return api.PartitionProduceResponse(
            index=self.index,
            error_code=error.code,
            base_offset=-1,
            log_start_offset=log_start_offset,
            record_errors=tuple(api.BatchIndexAndErrorMessage(index, message) for index, message in error.record_errors),
            error_message=message,
            current_leader=current_leader(services.cluster.image, self.topic, self.index) if moved else None,
        )


def _produce_partition(
    services: BrokerServices, request: Request, topic: api.TopicProduceData, partition: api.PartitionProduceData
) -> ProducePartition:
    buffers = partition.records or (b"",)
    records = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    header = read_header(records) if len(records) >= HEADER_SIZE else None
    name = topic.name
    try:
        name = topic_name(services.cluster.image, topic.name, topic.topic_id, by_id=request.version >= _FIRST_BY_ID)
        check_right(services, request, AclOperation.WRITE, ResourceType.TOPIC, name)
        if services.cluster.image.partition(name, partition.index) is None:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _check(request, name, records, header)
    except ApiException as error:
        return ProducePartition(name, partition.index, records, header, ApiException(error.code))
    return ProducePartition(name, partition.index, records, header)


def _check(request: Request, name: str, records: Buffer, header: BatchHeader | None) -> None:
    """Checks in Kafka's order: `ProduceRequest.validateRecords`, then `ReplicaManager.appendRecords`."""
    body: api.ProduceRequest = request.body
    if header is None:
        raise ApiException(ErrorCode.INVALID_RECORD)
    only_batch(memoryview(records))
    if header.codec_id == Codec.ZSTD and request.version < _FIRST_WITH_ZSTD:
        raise ApiException(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if body.acks not in _ACKS:
        raise ApiException(ErrorCode.INVALID_REQUIRED_ACKS)
    if name in INTERNAL_TOPICS and request.header.client_id != _ADMIN_CLIENT_ID:
        raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION)
