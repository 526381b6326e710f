"""CreateTopics: topics are there when the answer is, so its timeout has nothing to wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.broker_settings import BrokerSettings, ConfigSource, topic_places, topic_values
from spark_kafka_sink.broker.cluster.metadata_image import TopicState
from spark_kafka_sink.broker.cluster.new_topics import DEFAULT, check_amount
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS, parsed
from spark_kafka_sink.broker.handlers.controller import check_is_controller
from spark_kafka_sink.broker.handlers.repeated import repeated
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's controllers keep their log under this name, so no topic can have it."""


def handle_create_topics(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, CreateTopicsRequest)
    check_is_controller(services)
    refused = _refused(body.topics)
    topics = [topic for topic in body.topics if topic.name not in refused]
    check_amount(sum(_partitions(topic, services.config.num_partitions) for topic in topics))
    made = [_made(services, topic, validate_only=body.validate_only) for topic in topics]
    return CreateTopicsResponse(topics=(*made, *refused.values()))


def _refused(topics: Iterable[CreatableTopic]) -> dict[str, CreatableTopicResult]:
    names = [topic.name for topic in topics]
    reasons = dict.fromkeys(repeated(names), "Duplicate topic name.")
    if names.count(CLUSTER_METADATA_TOPIC) == 1:
        reasons[CLUSTER_METADATA_TOPIC] = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
    return {name: _failed(name, ErrorCode.INVALID_REQUEST, text) for name, text in reasons.items()}


def _failed(name: str, code: ErrorCode, text: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=code, error_message=text)


def _partitions(topic: CreatableTopic, default: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == DEFAULT else max(0, topic.num_partitions)


def _made(services: BrokerServices, topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    try:
        made = services.cluster.create_topic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            assignments=[(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments],
            configs={config.name: config.value for config in topic.configs},
            validate_only=validate_only,
        )
    except ApiException as error:
        return _failed(topic.name, error.code, error.message)
    return _succeeded(services, made)


def _succeeded(services: BrokerServices, topic: TopicState) -> CreatableTopicResult:
    return CreatableTopicResult(
        topic.name,
        topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=_configs(services, topic.configs),
    )


def _configs(services: BrokerServices, configs: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
    settings = BrokerSettings(services.config, services.cluster.image, services.node_id)
    values = topic_values(services.config, services.cluster.image, services.node_id, parsed(configs))

    def described(name: str) -> CreatableTopicConfigs:
        key = TOPIC_CONFIGS[name]
        places = topic_places(settings, key, configs)
        source = places[0].source if places else ConfigSource.DEFAULT
        # What the client wrote comes back as it was written.
        return CreatableTopicConfigs(name, configs.get(name, key.text(values[name])), False, source)

    names = (name for name, key in TOPIC_CONFIGS.items() if name in configs or not key.is_internal)
    return tuple(described(name) for name in sorted(names))
