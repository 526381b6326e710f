"""OffsetCommit: how far a member, or a consumer without a group, has read."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.group.offset_metadata_manager import Codes, Committer, Offsets
from spark_kafka_sink.broker.group.offsets import NO_EXPIRY, TopicPartition
from spark_kafka_sink.broker.handlers.committed_offsets import committed, offsets_of
from spark_kafka_sink.broker.handlers.group_ids import check_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_DEFAULT_RETENTION: Final = -1


def handle_offset_commit(services: BrokerServices, request: Request) -> OffsetCommitResponse:
    body = request.body
    assert isinstance(body, OffsetCommitRequest)
    by = Committer(body.group_id, body.generation_id_or_member_epoch, body.member_id, body.group_instance_id)

    def commit(offsets: Offsets) -> Codes:
        check_coordinator(services, body.group_id)
        return services.group_coordinator.commit_offsets(by, offsets, request.version)

    now_ms = services.wall_ms()
    keep_ms = body.retention_time_ms
    offsets = offsets_of(body.topics, now_ms, NO_EXPIRY if keep_ms == _DEFAULT_RETENTION else now_ms + keep_ms)
    return _response(body, committed(services, offsets, commit))


def _response(body: OffsetCommitRequest, codes: Codes) -> OffsetCommitResponse:
    def of_partition(topic: str, index: int) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(index, codes[TopicPartition(topic, index)])

    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                topic.name, tuple(of_partition(topic.name, each.partition_index) for each in topic.partitions)
            )
            for topic in body.topics
        )
    )
