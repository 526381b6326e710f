"""OffsetDelete: a group forgets how far it has read some partitions (KIP-496)."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.group.offsets import TopicPartition
from spark_kafka_sink.broker.handlers.group_ids import check_group
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle_offset_delete(services: BrokerServices, request: Request) -> OffsetDeleteResponse:
    body = request.body
    assert isinstance(body, OffsetDeleteRequest)
    check_group(services, body.group_id)
    asked = [TopicPartition(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]
    existing = [one for one in asked if services.cluster.image.partition(*one) is not None]
    codes = services.group_coordinator.delete_offsets(body.group_id, existing)

    def of_partition(topic: str, index: int) -> OffsetDeleteResponsePartition:
        code = codes.get(TopicPartition(topic, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return OffsetDeleteResponsePartition(index, code)

    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                topic.name, tuple(of_partition(topic.name, each.partition_index) for each in topic.partitions)
            )
            for topic in body.topics
        )
    )
