"""Handlers for discovery: API versions, brokers, topics and their leaders, coordinators, wanted client metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.broker.acl import AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import CoordinatorType
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS, NO_LEADER, PartitionState, TopicState
from spark_kafka_sink.broker.cluster.new_topics import check_name
from spark_kafka_sink.broker.handlers.common import (
    OPERATIONS_NOT_ASKED,
    Handler,
    authorized_operations,
    check_right,
    cluster_operations,
    is_allowed,
)
from spark_kafka_sink.broker.kafka_release import ApiVersionManager
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.apis import metadata
from spark_kafka_sink.protocol.apis.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from spark_kafka_sink.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsRequest
from spark_kafka_sink.protocol.apis.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID, Message

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Java's `ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`."""


def api_versions_handler(versions: ApiVersionManager) -> Handler:
    """Returns the handler of ApiVersions, which any client may send, even before a login."""

    def handle_api_versions(_services: BrokerServices, request: Request) -> Message:
        if request.version != request.header.api_version:
            return versions.unsupported()
        if request.version >= 3:  # KIP-511: the client's name for logs and metrics; names that would not fit are refused
            body: ApiVersionsRequest = request.body
            if not (_SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)):
                raise ApiException(ErrorCode.INVALID_REQUEST)
            request.session.client_software_name = body.client_software_name
            request.session.client_software_version = body.client_software_version
        return versions.response(request.version)

    return handle_api_versions


def handle_metadata(services: BrokerServices, request: Request) -> metadata.MetadataResponse:
    """Lists brokers and topics. Creates requested topics where that is allowed."""
    body: metadata.MetadataRequest = request.body
    if request.version < 12:  # v10 and v11 have the field but must not use it (KAFKA-12701)
        for topic in body.topics or ():
            if topic.topic_id != ZERO_UUID:
                raise ApiException(ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in version {request.version}")
            if topic.name is None:
                raise ApiException(ErrorCode.INVALID_REQUEST, f"Topic name can not be null in version {request.version}")
    topics = _metadata_topics(services, request)
    image = services.cluster.image  # after topics were created
    running = (image.brokers[node] for node in image.up())
    listener, with_bits = request.listener.name, body.include_cluster_authorized_operations
    return metadata.MetadataResponse(
        brokers=tuple(metadata.MetadataResponseBroker(each.node_id, *each.advertised[listener]) for each in running),
        cluster_id=services.cluster.cluster_id,
        controller_id=services.cluster.controller_id(),
        topics=topics,
        cluster_authorized_operations=cluster_operations(services, request, asked=with_bits),
    )


def _metadata_topics(services: BrokerServices, request: Request) -> tuple[metadata.MetadataResponseTopic, ...]:
    """Returns the topics that the client may see. A request for all topics omits the others."""
    body: metadata.MetadataRequest = request.body
    if body.topics is None:
        every = services.cluster.image.topics.values()
        return tuple(
            _described_topic(services, request, topic)
            for topic in every
            if _is_visible(services, request, topic.name, logged=False)
        )
    asked: Iterable[metadata.MetadataRequestTopic] = {(topic.name, topic.topic_id): topic for topic in body.topics}.values()
    return tuple(_metadata_topic(services, request, topic) for topic in asked)


def _is_visible(services: BrokerServices, request: Request, topic: str, *, logged: bool = True) -> bool:
    return is_allowed(services, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, logged=logged)


def _metadata_topic(
    services: BrokerServices, request: Request, asked: metadata.MetadataRequestTopic
) -> metadata.MetadataResponseTopic:
    if asked.name is None:
        image = services.cluster.image
        known = image.topics.get(image.names.get(asked.topic_id, ""))
        if known is None:
            return _failed_topic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked)
        if not _is_visible(services, request, known.name):  # ids are not secret, names are
            return _failed_topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, asked)
        return _described_topic(services, request, known)
    if not _is_visible(services, request, asked.name):  # the same for topics that do not exist
        return metadata.MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=asked.name)
    try:
        return _described_topic(services, request, _found_or_made(services, request, asked.name))
    except ApiException as error:
        return _failed_topic(error.code, asked.name, asked)


def _found_or_made(services: BrokerServices, request: Request, name: str) -> TopicState:
    cluster, body = services.cluster, request.body
    known = cluster.image.topics.get(name)
    if known is not None:
        return known
    may_create = body.allow_auto_topic_creation and cluster.config.auto_create_topics_enable
    create = AclOperation.CREATE
    if may_create and not (
        is_allowed(services, request, create, ResourceType.CLUSTER, logged=False)
        or is_allowed(services, request, create, ResourceType.TOPIC, name)
    ):
        raise ApiException(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    check_name(name)
    if not may_create:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        return cluster.internal_topic(name) if name in INTERNAL_TOPICS else cluster.create_topic(name)
    except ApiException as error:
        known = cluster.image.topics.get(name)
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and known is not None:  # another client was faster
            return known
        raise


def _failed_topic(code: ErrorCode, name: str | None, asked: metadata.MetadataRequestTopic) -> metadata.MetadataResponseTopic:
    return metadata.MetadataResponseTopic(
        error_code=code, name=name, topic_id=asked.topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _described_topic(services: BrokerServices, request: Request, topic: TopicState) -> metadata.MetadataResponseTopic:
    with_bits = request.body.include_topic_authorized_operations
    bits = authorized_operations(services, request, ResourceType.TOPIC, topic.name) if with_bits else OPERATIONS_NOT_ASKED
    return metadata.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(map(_metadata_partition, topic.partitions)),
        topic_authorized_operations=bits,
    )


def _metadata_partition(partition: PartitionState) -> metadata.MetadataResponsePartition:
    return metadata.MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=tuple(node for node in partition.replicas if node not in partition.isr),
    )


_BROKER_ENDPOINT: Final = 1
_CONTROLLER_ENDPOINT: Final = 2


def handle_describe_cluster(services: BrokerServices, request: Request) -> DescribeClusterResponse:
    """Lists the brokers (KIP-700). Controllers are queried at their own address (KIP-919), which this broker does not have."""
    body: DescribeClusterRequest = request.body
    if body.endpoint_type == _CONTROLLER_ENDPOINT:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise ApiException(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    if body.endpoint_type != _BROKER_ENDPOINT:
        raise ApiException(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {body.endpoint_type}")
    brokers, listener = services.cluster.image.brokers, request.listener.name
    listed = [brokers[node] for node in sorted(brokers) if brokers[node].is_up or body.include_fenced_brokers]
    return DescribeClusterResponse(
        cluster_id=services.cluster.cluster_id,
        controller_id=services.cluster.controller_id(),
        brokers=tuple(DescribeClusterBroker(each.node_id, *each.advertised[listener], None, not each.is_up) for each in listed),
        cluster_authorized_operations=cluster_operations(services, request, asked=body.include_cluster_authorized_operations),
    )


_COORDINATORS: Final = {
    0: (CoordinatorType.GROUP, ResourceType.GROUP),
    1: (CoordinatorType.TRANSACTION, ResourceType.TRANSACTIONAL_ID),
}
"""The coordinator and the resource of each key type."""
_FIRST_WITH_MANY_KEYS = 4


def handle_find_coordinator(services: BrokerServices, request: Request) -> FindCoordinatorResponse:
    """Returns the broker that leads a key's partition of the internal topic."""
    body: FindCoordinatorRequest = request.body
    if request.version >= _FIRST_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=tuple(_coordinator(services, request, key) for key in body.coordinator_keys))
    found = _coordinator(services, request, body.key)
    return FindCoordinatorResponse(
        error_code=found.error_code, error_message=found.error_message, node_id=found.node_id, host=found.host, port=found.port
    )


def _coordinator(services: BrokerServices, request: Request, key: str) -> Coordinator:
    key_type = request.body.key_type
    try:
        if key_type not in _COORDINATORS:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}.")
        kind, resource_type = _COORDINATORS[key_type]
        check_right(services, request, AclOperation.DESCRIBE, resource_type, key)
        node = services.cluster.coordinator(kind, key)
        broker = services.cluster.image.brokers.get(node)
        if broker is None:
            raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    except ApiException as error:
        return Coordinator(key, -1, "", -1, error.code, error.message or error.code.name)
    host, port = broker.advertised[request.listener.name]
    # Kafka returns "NONE" here in v1 to v3; Java's clients read only the code.
    return Coordinator(key, node, host, port, ErrorCode.NONE, None)


def handle_get_telemetry_subscriptions(services: BrokerServices, request: Request) -> GetTelemetrySubscriptionsResponse:
    manager = services.config.client_metrics
    assert manager is not None
    return manager.subscription(request.body)


def handle_push_telemetry(services: BrokerServices, request: Request) -> PushTelemetryResponse:
    manager = services.config.client_metrics
    assert manager is not None
    manager.push(request.body, request.header.client_id)
    return PushTelemetryResponse()
