"""DeleteTopics, by name or by id. As in Kafka internal topics can be deleted too (`ControllerApis.deleteTopics`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.handlers.controller import check_is_controller
from spark_kafka_sink.broker.handlers.repeated import repeated
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from spark_kafka_sink.protocol.wire_types import ZERO_UUID

# Kafka's own words for a code that comes without any.
_UNKNOWN_NAME = "This server does not host this topic-partition."
_UNKNOWN_ID = "This server does not host this topic ID."


def handle_delete_topics(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, DeleteTopicsRequest)
    check_is_controller(services)
    asked = body.topics if request.version >= 6 else [DeleteTopicState(name) for name in body.topic_names]
    return DeleteTopicsResponse(responses=tuple(_results(services, asked)))


def _results(services: BrokerServices, asked: Sequence[DeleteTopicState]) -> Iterator[DeletableTopicResult]:
    yield from _malformed(asked)
    names = [state.name for state in asked if state.name is not None and state.topic_id == ZERO_UUID]
    ids = [state.topic_id for state in asked if state.name is None and state.topic_id != ZERO_UUID]
    repeated_names, repeated_ids = repeated(names), repeated(ids)
    for name in repeated_names:
        yield _refused(name, ZERO_UUID, "Duplicate topic name.")
    for topic_id in repeated_ids:
        yield _refused(None, topic_id, "Duplicate topic id.")
    image = services.cluster.image
    for name in [name for name in names if name not in repeated_names]:
        yield _by_name(services, image, name, ids)
    by_both = {image.topics[name].topic_id for name in names if name in image.topics and name not in repeated_names}
    for topic_id in [topic_id for topic_id in ids if topic_id not in repeated_ids and topic_id not in by_both]:
        yield _by_id(services, image, topic_id)


def _malformed(asked: Sequence[DeleteTopicState]) -> Iterator[DeletableTopicResult]:
    for state in asked:
        if state.name is None and state.topic_id == ZERO_UUID:
            yield _refused(None, ZERO_UUID, "Neither topic name nor id were specified.")
        elif state.name is not None and state.topic_id != ZERO_UUID:
            yield _refused(state.name, state.topic_id, "You may not specify both topic name and topic id.")


def _refused(name: str | None, topic_id: uuid.UUID, text: str) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, text)


def _by_name(services: BrokerServices, image: MetadataImage, name: str, ids: Sequence[uuid.UUID]) -> DeletableTopicResult:
    topic = image.topics.get(name)
    if topic is None:
        return DeletableTopicResult(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_NAME)
    if topic.topic_id in ids:
        return _refused(name, topic.topic_id, "The provided topic name maps to an ID that was already supplied.")
    return _deleted(services, name, topic.topic_id)


def _by_id(services: BrokerServices, image: MetadataImage, topic_id: uuid.UUID) -> DeletableTopicResult:
    name = image.names.get(topic_id)
    if name is None:
        return DeletableTopicResult(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
    return _deleted(services, name, topic_id)


def _deleted(services: BrokerServices, name: str, topic_id: uuid.UUID) -> DeletableTopicResult:
    try:
        services.cluster.delete_topic(name, topic_id)
    except ApiException:  # it went between the two looks
        return DeletableTopicResult(name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
    return DeletableTopicResult(name, topic_id)
