"""Handlers for configs of topics and brokers: describe with the source of each value, replace, alter single ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias, TypeVar

from spark_kafka_sink.broker.acl import CLUSTER_NAME, AclOperation
from spark_kafka_sink.broker.acl import ResourceType as AclResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.broker_settings import (
    BROKER_CONFIGS,
    DYNAMIC_CONFIGS,
    EVERY_BROKER,
    BrokerSettings,
    ConfigLocation,
    ConfigSource,
    topic_values,
)
from spark_kafka_sink.broker.cluster.cluster import ConfigChange
from spark_kafka_sink.broker.cluster.new_topics import check_name
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS, ConfigKey, ConfigType, parsed
from spark_kafka_sink.broker.handlers.auth_helper import TEXTS, is_allowed
from spark_kafka_sink.broker.handlers.common import repeated
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol import alter_configs, configs
from spark_kafka_sink.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

T = TypeVar("T")
Resource: TypeAlias = Any
"""AlterConfigsResource of the old or the new API. Both have a type, a name and configs."""


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type. This broker has configs of the first two."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def _check_right(services: BrokerServices, request: Request, operation: AclOperation, kind: int, name: str) -> None:
    """Raises the error for a resource's type. Broker configs belong to the cluster (`ControllerApis.authorizeAlterResource`)."""
    if kind == ResourceType.TOPIC:
        code, resource = ErrorCode.TOPIC_AUTHORIZATION_FAILED, AclResourceType.TOPIC
    elif kind == ResourceType.GROUP:
        code, resource = ErrorCode.GROUP_AUTHORIZATION_FAILED, AclResourceType.GROUP
    else:
        code, resource, name = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, AclResourceType.CLUSTER, CLUSTER_NAME
    if not is_allowed(services, request, operation, resource, name):
        raise ApiException(code, TEXTS[code])


def _altered(
    services: BrokerServices,
    request: Request,
    change_of: Callable[[Resource], ConfigChange],
    result: Callable[[ErrorCode, str | None, int, str], T],
) -> tuple[T, ...]:
    """Alters the resources in a request of either API. `change_of` returns the new configs of a resource."""
    body = request.body
    twice = repeated((resource.resource_type, resource.resource_name) for resource in body.resources)

    def result_of(resource: Resource) -> T:
        where = resource.resource_type, resource.resource_name
        try:
            if where in twice:
                raise ApiException(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_right(services, request, AclOperation.ALTER_CONFIGS, *where)
            _alter(services, resource, change_of, validate_only=body.validate_only)
        except ApiException as error:
            return result(error.code, error.message, *where)
        return result(ErrorCode.NONE, None, *where)

    return tuple(map(result_of, body.resources))


def _alter(
    services: BrokerServices, resource: Resource, change_of: Callable[[Resource], ConfigChange], *, validate_only: bool
) -> None:
    if repeated(config.name for config in resource.configs):
        raise ApiException(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    change = change_of(resource)
    if resource.resource_type == ResourceType.TOPIC:
        services.cluster.alter_topic_configs(resource.resource_name, change, validate_only=validate_only)
    elif resource.resource_type == ResourceType.BROKER:
        node_id = _altered_broker(services, resource.resource_name)
        services.cluster.alter_broker_configs(node_id, change, validate_only=validate_only)
    else:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _altered_broker(services: BrokerServices, name: str) -> int:
    """Returns the broker to alter: a broker alters its own configs and those of all brokers."""
    if not name:
        return EVERY_BROKER
    if _parsed_id(name, "Node") != services.node_id:
        text = f"Unexpected broker id, expected {services.node_id}, but received {name}"
        raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return services.node_id


def _parsed_id(name: str, kind: str) -> int:
    """Returns a broker's id. Raises INVALID_REQUEST."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal() or len(digits) > 10:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"{kind} id must be an integer, but it is: {name}")
    return int(name)


def _refuse_nulls(names: Iterable[str]) -> None:
    """Raises INVALID_REQUEST if a config is set to null."""
    if listed := ", ".join(names):
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {listed}")


@dataclass(frozen=True, slots=True)
class _Described:
    """A config with everything that a request can ask for. `key` is None if only a plugin knows it."""

    name: str
    key: ConfigKey | None
    value: str | None
    locations: Sequence[ConfigLocation]
    read_only: bool = False


def handle_describe_configs(services: BrokerServices, request: Request) -> DescribeConfigsResponse:
    body: DescribeConfigsRequest = request.body
    for resource in body.resources:
        if resource.resource_type not in set(ResourceType):  # as in Kafka, the whole request is refused
            text = f"Unexpected resource type {resource.resource_type} for resource {resource.resource_name}"
            raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return DescribeConfigsResponse(results=tuple(_description(services, request, resource) for resource in body.resources))


def _description(services: BrokerServices, request: Request, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    body: DescribeConfigsRequest = request.body
    where = resource.resource_type, resource.resource_name
    try:
        _check_right(services, request, AclOperation.DESCRIBE_CONFIGS, *where)
        described = _described_configs(services, resource)
    except ApiException as error:
        return DescribeConfigsResult(error.code, error.message or "", *where)
    keys = resource.configuration_keys
    configs = tuple(_described_config(config, body) for config in described if not keys or config.name in keys)
    return DescribeConfigsResult(ErrorCode.NONE, "", *where, configs)


def _described_configs(services: BrokerServices, resource: DescribeConfigsResource) -> Iterable[_Described]:
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
        _Described(key.name, key, key.text(values[key.name]), settings.topic_locations(key, topic.configs))
        for key in TOPIC_CONFIGS.values()
        if key.name in topic.configs or not key.is_internal
    ]


def _of_broker(services: BrokerServices, name: str) -> list[_Described]:
    if _parsed_id(name, "Broker") != services.node_id:
        text = f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"
        raise ApiException(ErrorCode.INVALID_REQUEST, text)
    settings = BrokerSettings(services.config, services.cluster.image, services.node_id)
    return [_broker_config(name, settings.text(name), settings.locations(name)) for name in sorted(settings.names())]


def _of_every_broker(services: BrokerServices) -> list[_Described]:
    """Describes only the configs that were set for all brokers."""
    configs = services.cluster.image.configs.get(EVERY_BROKER, {})
    return [
        _broker_config(name, value, [ConfigLocation(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)])
        for name, value in configs.items()
    ]


def _broker_config(name: str, value: str | None, locations: Sequence[ConfigLocation]) -> _Described:
    return _Described(name, BROKER_CONFIGS.get(name), value, locations, name not in DYNAMIC_CONFIGS)


def _described_config(config: _Described, asked: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    # An unknown config could be a secret (`KafkaConfig.maybeSensitive`).
    secret = config.key is None or config.key.is_sensitive
    synonyms = [DescribeConfigsSynonym(each.name, None if secret else each.value, each.source) for each in config.locations]
    return DescribeConfigsResourceResult(
        config.name,
        None if secret else config.value,
        config.read_only,
        config.locations[0].source if config.locations else ConfigSource.DEFAULT,
        secret,
        tuple(synonyms) if asked.include_synonyms else (),
        0 if config.key is None else config.key.type,
        config.key.doc if asked.include_documentation and config.key is not None else None,
    )


def handle_alter_configs(services: BrokerServices, request: Request) -> alter_configs.AlterConfigsResponse:
    """Replaces all configs. Those that are not in the request are unset."""
    result = alter_configs.AlterConfigsResourceResponse
    return alter_configs.AlterConfigsResponse(responses=_altered(services, request, _replaced, result))


def _replaced(resource: alter_configs.AlterConfigsResource) -> ConfigChange:
    _refuse_nulls(config.name for config in resource.configs if config.value is None)
    configs = {config.name: config.value for config in resource.configs if config.value is not None}
    return lambda current: configs


class OpType(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3

    def __str__(self) -> str:
        return self.name.lower()


# Kafka's controller checks topics, and brokers check themselves.
_NO_LIST_OF_TOPIC: Final = "Can't {op.name} to key {key} because its type is not LIST."
_NO_LIST_OF_BROKER: Final = "Config value {op} is not allowed for config key: {key}"

_Combine: TypeAlias = Callable[[list[str], list[str]], list[str]]

_LIST_OPS: Final[Mapping[int, _Combine]] = {
    OpType.APPEND: lambda old, given: old + [part for part in dict.fromkeys(given) if part not in old],
    OpType.SUBTRACT: lambda old, given: [part for part in old if part not in given],
}


def handle_incremental_alter_configs(services: BrokerServices, request: Request) -> configs.IncrementalAlterConfigsResponse:
    """Sets, deletes, extends or shrinks single configs. The others are unchanged."""
    result = configs.AlterConfigsResourceResponse
    return configs.IncrementalAlterConfigsResponse(responses=_altered(services, request, _changed, result))


def _changed(resource: configs.AlterConfigsResource) -> ConfigChange:
    configs = resource.configs
    _refuse_nulls(config.name for config in configs if config.value is None and config.config_operation != OpType.DELETE)
    of_topic = resource.resource_type == ResourceType.TOPIC
    keys: Mapping[str, ConfigKey] = TOPIC_CONFIGS if of_topic else BROKER_CONFIGS
    refusal = _NO_LIST_OF_TOPIC if of_topic else _NO_LIST_OF_BROKER

    def change(current: Mapping[str, str]) -> Mapping[str, str]:
        changed = dict(current)
        for config in configs:
            value = _changed_value(config, current.get(config.name), keys.get(config.name), refusal)
            if value is None:
                changed.pop(config.name, None)
            else:
                changed[config.name] = value
        return changed

    return change


def _changed_value(config: configs.AlterableConfig, current: str | None, key: ConfigKey | None, refusal: str) -> str | None:
    """Returns the new value; None unsets it. `refusal`: the error's text for a config that is not a list."""
    if config.config_operation == OpType.SET:
        return config.value
    if config.config_operation == OpType.DELETE:
        return None
    combine = _LIST_OPS.get(config.config_operation)
    if combine is None:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    if key is None or key.type is not ConfigType.LIST:
        raise ApiException(ErrorCode.INVALID_CONFIG, refusal.format(op=OpType(config.config_operation), key=config.name))
    # Kafka's default is extended, not the broker's value (`ConfigurationControlManager.getParts`).
    old = key.text(key.default) if current is None else current
    return ",".join(combine([part for part in (old or "").split(",") if part], (config.value or "").split(",")))
