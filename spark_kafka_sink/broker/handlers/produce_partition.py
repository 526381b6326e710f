"""One partition's part of a Produce: what can be said of it before its log is asked, and its append."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS
from spark_kafka_sink.broker.handlers.topics_asked import current_leader, topic_name
from spark_kafka_sink.broker.log.batch import BatchHeader, read_header
from spark_kafka_sink.broker.log.log_validator import only_batch
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from spark_kafka_sink.protocol.wire_types import Buffer
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec

_ACKS = (-1, 0, 1)
_FIRST_BY_ID = 13
_FIRST_WITH_ZSTD = 7
# Kafka's AdminUtils.ADMIN_CLIENT_ID: its own tools may repair internal topics.
_ADMIN_CLIENT_ID = "__admin_client"
# Those of `ReplicaManager.appendToLocalLog` that it has a case of their own for.
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
    """`header`: of its first batch, None where there is none. `error`: why it is refused. `guard`: with it the log takes the
    first records of a transaction."""

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
        """Where the batch says that it is part of a transaction, and nothing speaks against it yet."""
        header = self.header
        return header if header is not None and header.is_transactional and self.error is None else None

    def append(self, services: BrokerServices, acks: int) -> PartitionProduceResponse:
        if self.error is not None:
            return self._failed(services, self.error, self.error.message)
        try:
            info = services.replica_manager.append(self.topic, self.index, self.records, acks, guard=self.guard)
        except ApiException as error:
            start = -1 if error.code in _WITHOUT_LOG_START else services.replica_manager.log_start_offset(*self.topic_partition)
            return self._failed(services, error, error.message if error.record_errors else None, start)
        return PartitionProduceResponse(
            index=self.index,
            error_code=ErrorCode.NONE,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )

    def _failed(
        self, services: BrokerServices, error: ApiException, message: str | None, log_start_offset: int = -1
    ) -> PartitionProduceResponse:
        """Kafka has words only for records that it names, and for transactions that it cannot verify."""
        moved = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionProduceResponse(
            index=self.index,
            error_code=error.code,
            base_offset=-1,
            log_start_offset=log_start_offset,
            record_errors=tuple(BatchIndexAndErrorMessage(index, message) for index, message in error.record_errors),
            error_message=message,
            current_leader=current_leader(services.cluster.image, self.topic, self.index) if moved else None,
        )


def produce_partition(
    services: BrokerServices, request: Request, topic: TopicProduceData, partition: PartitionProduceData
) -> ProducePartition:
    records = _records(partition)
    header = read_header(records) if len(records) >= HEADER_SIZE else None
    name = topic.name
    try:
        name = topic_name(services.cluster.image, topic.name, topic.topic_id, by_id=request.version >= _FIRST_BY_ID)
        if services.cluster.image.partition(name, partition.index) is None:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _check(request, name, records, header)
    except ApiException as error:
        return ProducePartition(name, partition.index, records, header, ApiException(error.code))
    return ProducePartition(name, partition.index, records, header)


def _records(partition: PartitionProduceData) -> Buffer:
    buffers = partition.records or (b"",)
    return buffers[0] if len(buffers) == 1 else b"".join(buffers)


def _check(request: Request, name: str, records: Buffer, header: BatchHeader | None) -> None:
    """In Kafka's order: `ProduceRequest.validateRecords`, then `ReplicaManager.appendRecords`."""
    body: ProduceRequest = request.body
    if header is None:
        raise ApiException(ErrorCode.INVALID_RECORD)
    only_batch(memoryview(records))
    if header.codec_id == Codec.ZSTD and request.version < _FIRST_WITH_ZSTD:
        raise ApiException(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if body.acks not in _ACKS:
        raise ApiException(ErrorCode.INVALID_REQUIRED_ACKS)
    if name in INTERNAL_TOPICS and request.header.client_id != _ADMIN_CLIENT_ID:
        raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION)
