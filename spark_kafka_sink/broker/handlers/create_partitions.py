"""CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.controller import check_is_controller
from spark_kafka_sink.broker.handlers.repeated import repeated
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle_create_partitions(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, CreatePartitionsRequest)
    check_is_controller(services)
    twice = repeated(topic.name for topic in body.topics)
    refused = [CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in twice]
    grown = [_grown(services, topic, body.validate_only) for topic in body.topics if topic.name not in twice]
    return CreatePartitionsResponse(results=(*refused, *grown))


def _grown(services: BrokerServices, topic: CreatePartitionsTopic, validate_only: bool) -> CreatePartitionsTopicResult:
    assignments = None if topic.assignments is None else [assigned.broker_ids for assigned in topic.assignments]
    try:
        services.cluster.create_partitions(topic.name, topic.count, assignments=assignments, validate_only=validate_only)
    except ApiException as error:
        return CreatePartitionsTopicResult(topic.name, error.code, error.message)
    return CreatePartitionsTopicResult(topic.name, ErrorCode.NONE)
