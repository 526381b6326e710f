"""OffsetFetch: how far groups have read; from v8 on of several groups at once (KIP-709)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.group.offset_metadata_manager import FetchedOffset
from spark_kafka_sink.broker.group.offsets import TopicPartition
from spark_kafka_sink.broker.handlers.group_ids import check_coordinator
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_FIRST_WITH_SEVERAL_GROUPS: Final = 8

Topics: TypeAlias = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None
"""None: all that the group has an offset of."""

Fetched: TypeAlias = Mapping[str, list[tuple[int, int, int, str, ErrorCode]]]
"""By topic: partition, offset, leader epoch, metadata, error code."""


def handle_offset_fetch(services: BrokerServices, request: Request) -> OffsetFetchResponse:
    body = request.body
    assert isinstance(body, OffsetFetchRequest)
    if request.version >= _FIRST_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(groups=tuple(_group(services, group, body.require_stable) for group in body.groups))
    fetched = _fetched(services, body.group_id, body.topics, body.require_stable)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(topic, tuple(OffsetFetchResponsePartition(*fields) for fields in partitions))
            for topic, partitions in fetched.items()
        )
    )


def _group(services: BrokerServices, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    try:
        fetched = _fetched(services, group.group_id, group.topics, require_stable)
    except ApiException as error:
        return OffsetFetchResponseGroup(group.group_id, error_code=error.code)
    topics = tuple(
        OffsetFetchResponseTopics(topic, tuple(OffsetFetchResponsePartitions(*fields) for fields in partitions))
        for topic, partitions in fetched.items()
    )
    return OffsetFetchResponseGroup(group.group_id, topics)


def _fetched(services: BrokerServices, group_id: str, topics: Topics, require_stable: bool) -> Fetched:
    check_coordinator(services, group_id)
    asked = None if topics is None else [TopicPartition(topic.name, one) for topic in topics for one in topic.partition_indexes]
    fetched = services.group_coordinator.fetch_offsets(group_id, asked, require_stable=require_stable)
    by_topic: dict[str, list[tuple[int, int, int, str, ErrorCode]]] = {topic.name: [] for topic in topics or ()}
    for one, found in fetched.items():
        by_topic.setdefault(one.topic, []).append(_fields(one, found))
    return by_topic


def _fields(one: TopicPartition, found: FetchedOffset) -> tuple[int, int, int, str, ErrorCode]:
    return one.partition, found.offset.offset, found.offset.leader_epoch, found.offset.metadata, found.error_code
