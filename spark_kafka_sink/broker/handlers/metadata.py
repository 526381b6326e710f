"""Metadata: brokers, topics and leaders; makes topics that are asked for, where that is allowed."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS, NO_LEADER, MetadataImage, PartitionState, TopicState
from spark_kafka_sink.broker.cluster.topic_names import check_name
from spark_kafka_sink.broker.handlers import authorized_operations
from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.wire_types import ZERO_UUID


def handle_metadata(services: BrokerServices, request: Request) -> MetadataResponse:
    body: MetadataRequest = request.body
    check_ids(body, request.version)
    topics = _topics(services.cluster, body)
    image = services.cluster.image  # after topics were made
    cluster_bits = (
        authorized_operations.CLUSTER if body.include_cluster_authorized_operations else authorized_operations.NOT_ASKED
    )
    return MetadataResponse(
        brokers=tuple(_broker(image, node, request.listener) for node in image.up()),
        cluster_id=services.cluster.cluster_id,
        controller_id=services.cluster.controller_id(),
        topics=topics,
        cluster_authorized_operations=cluster_bits,
    )


def check_ids(body: MetadataRequest, version: int) -> None:
    """v10 and v11 have the field and must not use it (KAFKA-12701)."""
    for topic in body.topics or ():
        if version < 12 and topic.topic_id != ZERO_UUID:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in version {version}")
        if topic.name is None and version < 12:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"Topic name can not be null in version {version}")


def _topics(cluster: Cluster, body: MetadataRequest) -> tuple[MetadataResponseTopic, ...]:
    with_bits = body.include_topic_authorized_operations
    if body.topics is None:
        return tuple(described(topic, with_bits) for topic in cluster.image.topics.values())
    asked: Iterable[MetadataRequestTopic] = {(topic.name, topic.topic_id): topic for topic in body.topics}.values()
    may_create = body.allow_auto_topic_creation and cluster.config.auto_create_topics_enable
    return tuple(_asked(cluster, topic, may_create, with_bits) for topic in asked)


def _asked(cluster: Cluster, asked: MetadataRequestTopic, may_create: bool, with_bits: bool) -> MetadataResponseTopic:
    if asked.name is None:
        known = cluster.image.topic_of_id(asked.topic_id)
        return described(known, with_bits) if known else _refused(ErrorCode.UNKNOWN_TOPIC_ID, None, asked)
    try:
        return described(_found_or_made(cluster, asked.name, may_create), with_bits)
    except ApiException as error:
        return _refused(error.code, asked.name, asked)


def _found_or_made(cluster: Cluster, name: str, may_create: bool) -> TopicState:
    known = cluster.image.topics.get(name)
    if known is not None:
        return known
    check_name(name)
    if not may_create:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        return cluster.internal_topic(name) if name in INTERNAL_TOPICS else cluster.create_topic(name)
    except ApiException as error:
        known = cluster.image.topics.get(name)
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and known is not None:  # somebody else was quicker
            return known
        raise


def _refused(code: ErrorCode, name: str | None, asked: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id, is_internal=name in INTERNAL_TOPICS)


def described(topic: TopicState, with_bits: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(map(_partition, topic.partitions)),
        topic_authorized_operations=authorized_operations.TOPIC if with_bits else authorized_operations.NOT_ASKED,
    )


def _partition(partition: PartitionState) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=tuple(node for node in partition.replicas if node not in partition.isr),
    )


def _broker(image: MetadataImage, node: int, listener: Listener) -> MetadataResponseBroker:
    broker = image.brokers[node]
    return MetadataResponseBroker(node, *broker.endpoint(listener.name), broker.rack)
