"""Handlers for topics and partitions: create, delete, extend, delete records, describe sizes."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from spark_kafka_sink.broker.acl import AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import INTERNAL_TOPICS, MetadataImage, TopicState
from spark_kafka_sink.broker.cluster.new_topics import DEFAULT, check_amount, check_given_counts
from spark_kafka_sink.broker.handlers.common import TEXTS, check_cluster, check_is_controller, check_right, is_allowed, repeated
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.server_properties import topic_values
from spark_kafka_sink.protocol.apis import cluster
from spark_kafka_sink.protocol.apis import topics as api
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import ZERO_UUID

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The name of the log of Kafka's controllers, so no topic can have it."""


def handle_create_topics(services: BrokerServices, request: Request) -> api.CreateTopicsResponse:
    """Creates topics. They exist when the response is sent, so the request's timeout is not used."""
    body: api.CreateTopicsRequest = request.body
    check_is_controller(services)
    names = [topic.name for topic in body.topics]
    refused = dict.fromkeys(repeated(names), "Duplicate topic name.")
    if names.count(CLUSTER_METADATA_TOPIC) == 1:
        refused[CLUSTER_METADATA_TOPIC] = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
    create = AclOperation.CREATE
    may_create_all = is_allowed(services, request, create, ResourceType.CLUSTER, logged=False)
    valid = [topic for topic in body.topics if topic.name not in refused]
    topics = [topic for topic in valid if may_create_all or is_allowed(services, request, create, ResourceType.TOPIC, topic.name)]
    check_amount(sum(_partition_count(topic, services.config.num_partitions) for topic in topics))
    created = [_created(services, request, topic) for topic in topics]
    invalid, unauthorized = ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    failed = (api.CreatableTopicResult(name, error_code=invalid, error_message=text) for name, text in refused.items())
    forbidden = (
        api.CreatableTopicResult(topic.name, error_code=unauthorized, error_message="Authorization failed.")
        for topic in valid
        if topic not in topics
    )
    return api.CreateTopicsResponse(topics=(*created, *failed, *forbidden))


def _partition_count(topic: api.CreatableTopic, default: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == DEFAULT else max(0, topic.num_partitions)


def _created(services: BrokerServices, request: Request, topic: api.CreatableTopic) -> api.CreatableTopicResult:
    try:
        if not topic.assignments and services.config.release.is_2_1:  # KIP-464
            check_given_counts(topic.num_partitions, topic.replication_factor)
        created = services.cluster.create_topic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            assignments=[(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments],
            configs={config.name: config.value for config in topic.configs},
            validate_only=request.body.validate_only,
        )
    except ApiException as error:
        return api.CreatableTopicResult(topic.name, error_code=error.code, error_message=error.message)
    if not is_allowed(services, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, logged=False):
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return api.CreatableTopicResult(created.name, created.topic_id, topic_config_error_code=hidden)
    return api.CreatableTopicResult(
        created.name,
        created.topic_id,
        num_partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        configs=tuple(
            # Returned as the client wrote them.
            api.CreatableTopicConfigs(each.key.name, created.configs.get(each.key.name, each.text), False, each.source)
            for each in sorted(topic_values(services.config, created.configs), key=lambda each: each.key.name)
        ),
    )


# Kafka's messages for codes that have none.
_UNKNOWN_NAME = "This server does not host this topic-partition."
_UNKNOWN_ID = "This server does not host this topic ID."


def handle_delete_topics(services: BrokerServices, request: Request) -> api.DeleteTopicsResponse:
    """Deletes topics by name or by id. As in Kafka, this includes internal topics (`ControllerApis.deleteTopics`)."""
    body: api.DeleteTopicsRequest = request.body
    check_is_controller(services)
    asked = body.topics if request.version >= 6 else [api.DeleteTopicState(name) for name in body.topic_names]
    return api.DeleteTopicsResponse(responses=tuple(_deletions(services, request, asked)))


def _deletions(
    services: BrokerServices, request: Request, asked: Sequence[api.DeleteTopicState]
) -> Iterator[api.DeletableTopicResult]:
    for state in asked:
        if state.name is None and state.topic_id == ZERO_UUID:
            yield _refused_deletion(None, ZERO_UUID, "Neither topic name nor id were specified.")
        elif state.name is not None and state.topic_id != ZERO_UUID:
            yield _refused_deletion(state.name, state.topic_id, "You may not specify both topic name and topic id.")
    names = [state.name for state in asked if state.name is not None and state.topic_id == ZERO_UUID]
    ids = [state.topic_id for state in asked if state.name is None and state.topic_id != ZERO_UUID]
    repeated_names, repeated_ids = repeated(names), repeated(ids)
    for name in repeated_names:
        yield _refused_deletion(name, ZERO_UUID, "Duplicate topic name.")
    for topic_id in repeated_ids:
        yield _refused_deletion(None, topic_id, "Duplicate topic id.")
    image = services.cluster.image
    for name in [name for name in names if name not in repeated_names]:
        yield _forbidden_by_name(services, request, name) or _deleted_by_name(services, image, name, ids)
    by_both = {image.topics[name].topic_id for name in names if name in image.topics and name not in repeated_names}
    for topic_id in [topic_id for topic_id in ids if topic_id not in repeated_ids and topic_id not in by_both]:
        yield _deleted_by_id(services, request, topic_id, image.names.get(topic_id))


def _may_delete(services: BrokerServices, request: Request, topic: str, operation: AclOperation) -> bool:
    whole = is_allowed(services, request, AclOperation.DELETE, ResourceType.CLUSTER, logged=False)
    return whole or is_allowed(services, request, operation, ResourceType.TOPIC, topic)


def _forbidden_by_name(services: BrokerServices, request: Request, name: str) -> api.DeletableTopicResult | None:
    """Returns the error for a topic that the client may not delete. Only clients that may describe it learn whether it exists."""
    exists = name in services.cluster.image.topics
    if _may_delete(services, request, name, AclOperation.DESCRIBE) and (
        not exists or _may_delete(services, request, name, AclOperation.DELETE)
    ):
        return None
    return _forbidden_deletion(name, ZERO_UUID)


def _forbidden_deletion(name: str | None, topic_id: uuid.UUID) -> api.DeletableTopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return api.DeletableTopicResult(name, topic_id, code, TEXTS[code])


def _refused_deletion(name: str | None, topic_id: uuid.UUID, text: str) -> api.DeletableTopicResult:
    return api.DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, text)


def _deleted_by_name(
    services: BrokerServices, image: MetadataImage, name: str, ids: Sequence[uuid.UUID]
) -> api.DeletableTopicResult:
    topic = image.topics.get(name)
    if topic is None:
        return api.DeletableTopicResult(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_NAME)
    if topic.topic_id in ids:
        return _refused_deletion(name, topic.topic_id, "The provided topic name maps to an ID that was already supplied.")
    return _deleted(services, name, topic.topic_id)


def _deleted_by_id(services: BrokerServices, request: Request, topic_id: uuid.UUID, name: str | None) -> api.DeletableTopicResult:
    if name is None:
        return api.DeletableTopicResult(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
    if not _may_delete(services, request, name, AclOperation.DELETE):
        return _forbidden_deletion(name if _may_delete(services, request, name, AclOperation.DESCRIBE) else None, topic_id)
    return _deleted(services, name, topic_id)


def _deleted(services: BrokerServices, name: str, topic_id: uuid.UUID) -> api.DeletableTopicResult:
    try:
        services.cluster.delete_topic(name, topic_id)
    except ApiException:  # it was deleted between the two lookups
        return api.DeletableTopicResult(name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
    return api.DeletableTopicResult(name, topic_id)


def handle_create_partitions(services: BrokerServices, request: Request) -> api.CreatePartitionsResponse:
    body: api.CreatePartitionsRequest = request.body
    check_is_controller(services)
    twice = repeated(topic.name for topic in body.topics)
    refused = [api.CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in twice]
    extended = [_extended(services, request, topic) for topic in body.topics if topic.name not in twice]
    return api.CreatePartitionsResponse(results=(*refused, *extended))


def _extended(services: BrokerServices, request: Request, topic: api.CreatePartitionsTopic) -> api.CreatePartitionsTopicResult:
    if not is_allowed(services, request, AclOperation.ALTER, ResourceType.TOPIC, topic.name):
        return api.CreatePartitionsTopicResult(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assignments = None if topic.assignments is None else [assigned.broker_ids for assigned in topic.assignments]
    validate_only = request.body.validate_only
    try:
        services.cluster.create_partitions(topic.name, topic.count, assignments=assignments, validate_only=validate_only)
    except ApiException as error:
        return api.CreatePartitionsTopicResult(topic.name, error.code, error.message)
    return api.CreatePartitionsTopicResult(topic.name, ErrorCode.NONE)


def handle_delete_records(services: BrokerServices, request: Request) -> api.DeleteRecordsResponse:
    body: api.DeleteRecordsRequest = request.body
    asked: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        # If a partition occurs twice, the last entry wins. The response lists each topic once.
        asked.setdefault(topic.name, {}).update({part.partition_index: part.offset for part in topic.partitions})
    return api.DeleteRecordsResponse(
        topics=tuple(
            api.DeleteRecordsTopicResult(
                name, tuple(_records_deleted(services, request, name, index, offset) for index, offset in parts.items())
            )
            for name, parts in asked.items()
        )
    )


def _records_deleted(
    services: BrokerServices, request: Request, topic: str, index: int, offset: int
) -> api.DeleteRecordsPartitionResult:
    try:
        # `ReplicaManager.deleteRecordsOnLocalLog` and `Partition.deleteRecordsOnLeader`. The response has no field for a message.
        check_right(services, request, AclOperation.DELETE, ResourceType.TOPIC, topic)
        if services.cluster.image.partition(topic, index) is not None and topic in INTERNAL_TOPICS:
            raise ApiException(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = services.replica_manager.led(topic, index).log
        if not log.config.delete:
            raise ApiException(ErrorCode.POLICY_VIOLATION)
        return api.DeleteRecordsPartitionResult(index, log.delete_records_before(offset), ErrorCode.NONE)
    except ApiException as error:
        return api.DeleteRecordsPartitionResult(index, -1, error.code)


IN_MEMORY: Final = ":memory:"
"""The path of a broker without a folder, whose volume has the size -1."""


def handle_describe_log_dirs(services: BrokerServices, request: Request) -> cluster.DescribeLogDirsResponse:
    """Returns the sizes of the partitions with a replica on this broker (`ReplicaManager.describeLogDirs`)."""
    body: cluster.DescribeLogDirsRequest = request.body
    check_cluster(services, request, AclOperation.DESCRIBE)
    asked = None if body.topics is None else {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    topics = services.cluster.image.topics.values()
    described = (cluster.DescribeLogDirsTopic(topic.name, tuple(_log_dir_partitions(services, topic, asked))) for topic in topics)
    folder = services.config.data_dir
    path, total, usable = IN_MEMORY, -1, -1
    if folder is not None:
        usage = shutil.disk_usage(folder)
        path, total, usable = str(folder.absolute()), usage.total, usage.free
    sized = tuple(topic for topic in described if topic.partitions)
    return cluster.DescribeLogDirsResponse(results=(cluster.DescribeLogDirsResult(ErrorCode.NONE, path, sized, total, usable),))


def _log_dir_partitions(
    services: BrokerServices, topic: TopicState, asked: set[tuple[str, int]] | None
) -> Iterator[cluster.DescribeLogDirsPartition]:
    for partition in topic.partitions:
        if services.node_id in partition.replicas and (asked is None or (topic.name, partition.index) in asked):
            size = services.replica_manager.log_size(topic.name, partition.index)
            if size is not None:
                yield cluster.DescribeLogDirsPartition(partition.index, size, offset_lag=0)
