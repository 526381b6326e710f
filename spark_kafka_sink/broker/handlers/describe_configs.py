"""DescribeConfigs: every config of a topic or broker, with the places that its value could come from (ConfigHelper)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.broker_settings import (
    BROKER_CONFIGS,
    DYNAMIC_CONFIGS,
    EVERY_BROKER,
    BrokerSettings,
    ConfigSource,
    Place,
    topic_places,
    topic_values,
)
from spark_kafka_sink.broker.cluster.config_def import ConfigKey
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS, parsed
from spark_kafka_sink.broker.cluster.topic_names import check_name
from spark_kafka_sink.broker.handlers.config_resources import ResourceType, parsed_id
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

_KNOWN_TYPES = frozenset(ResourceType)


@dataclass(frozen=True, slots=True)
class _Described:
    """A config, before it is known what was asked about it. `key` is None for one that only a plugin knows."""

    name: str
    key: ConfigKey | None
    value: str | None
    places: Sequence[Place]
    read_only: bool = False


def handle_describe_configs(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, DescribeConfigsRequest)
    for resource in body.resources:
        if resource.resource_type not in _KNOWN_TYPES:  # as in Kafka the whole request is refused
            text = f"Unexpected resource type {resource.resource_type} for resource {resource.resource_name}"
            raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return DescribeConfigsResponse(results=tuple(_result(services, resource, body) for resource in body.resources))


def _result(services: BrokerServices, resource: DescribeConfigsResource, body: DescribeConfigsRequest) -> DescribeConfigsResult:
    where = resource.resource_type, resource.resource_name
    try:
        described = _described(services, resource)
    except ApiException as error:
        return DescribeConfigsResult(error.code, error.message or "", *where)
    keys = resource.configuration_keys
    configs = tuple(_entry(config, body) for config in described if not keys or config.name in keys)
    return DescribeConfigsResult(ErrorCode.NONE, "", *where, configs)


def _described(services: BrokerServices, resource: DescribeConfigsResource) -> Iterable[_Described]:
    if resource.resource_type == ResourceType.TOPIC:
        return _of_topic(services, resource.resource_name)
    if resource.resource_type == ResourceType.BROKER:
        return _of_broker(services, resource.resource_name) if resource.resource_name else _of_every_broker(services)
    raise ApiException(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {ResourceType(resource.resource_type).name}")


def _of_topic(services: BrokerServices, name: str) -> list[_Described]:
    check_name(name)
    image = services.cluster.image
    topic = image.topics.get(name)
    if topic is None:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    settings = BrokerSettings(services.config, image, services.node_id)
    values = topic_values(services.config, image, services.node_id, parsed(topic.configs))
    return [
        _Described(key.name, key, key.text(values[key.name]), topic_places(settings, key, topic.configs))
        for key in TOPIC_CONFIGS.values()
        if key.name in topic.configs or not key.is_internal
    ]


def _of_broker(services: BrokerServices, name: str) -> list[_Described]:
    if parsed_id(name, f"Broker id must be an integer, but it is: {name}") != services.node_id:
        text = f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"
        raise ApiException(ErrorCode.INVALID_REQUEST, text)
    settings = BrokerSettings(services.config, services.cluster.image, services.node_id)
    return [_broker_config(name, settings.text(name), settings.places(name)) for name in sorted(settings.names())]


def _of_every_broker(services: BrokerServices) -> list[_Described]:
    """Only what was set for all of them."""
    configs = services.cluster.image.configs.get(EVERY_BROKER, {})
    return [
        _broker_config(name, value, [Place(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)]) for name, value in configs.items()
    ]


def _broker_config(name: str, value: str | None, places: Sequence[Place]) -> _Described:
    return _Described(name, BROKER_CONFIGS.get(name), value, places, name not in DYNAMIC_CONFIGS)


def _entry(config: _Described, asked: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    # What nobody here knows could be a secret (`KafkaConfig.maybeSensitive`).
    secret = config.key is None or config.key.is_sensitive
    synonyms = [DescribeConfigsSynonym(place.name, None if secret else place.value, place.source) for place in config.places]
    return DescribeConfigsResourceResult(
        config.name,
        None if secret else config.value,
        config.read_only,
        config.places[0].source if config.places else ConfigSource.DEFAULT,
        secret,
        tuple(synonyms) if asked.include_synonyms else (),
        0 if config.key is None else config.key.type,
        config.key.doc if asked.include_documentation and config.key is not None else None,
    )
