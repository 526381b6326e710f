"""DeleteRecords: a partition begins later from now on."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle_delete_records(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, DeleteRecordsRequest)
    asked: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        # The last of those that name a partition twice, and each topic once in the answer.
        asked.setdefault(topic.name, {}).update({part.partition_index: part.offset for part in topic.partitions})
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(name, tuple(_result(services, name, index, offset) for index, offset in parts.items()))
            for name, parts in asked.items()
        )
    )


def _result(services: BrokerServices, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        return DeleteRecordsPartitionResult(index, _deleted_before(services, topic, index, offset), ErrorCode.NONE)
    except ApiException as error:
        return DeleteRecordsPartitionResult(index, -1, error.code)


def _deleted_before(services: BrokerServices, topic: str, index: int, offset: int) -> int:
    """Where the partition begins then. `ReplicaManager.deleteRecordsOnLocalLog` and `Partition.deleteRecordsOnLeader`."""
    if services.cluster.image.partition(topic, index) is not None and topic in INTERNAL_TOPICS:
        raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    log = services.replica_manager.led(topic, index).log
    if not log.config.delete:
        text = f"Records of partition {topic}-{index} can not be deleted due to the configured policy"
        raise ApiException(ErrorCode.POLICY_VIOLATION, text)
    return log.delete_records_before(offset)
