"""Handlers for configs of topics and brokers: describe with the source of each value, replace, alter single ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeAlias, TypeVar

from spark_kafka_sink.broker.acl import CLUSTER_NAME, AclOperation
from spark_kafka_sink.broker.acl import ResourceType as AclResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import ConfigChange
from spark_kafka_sink.broker.cluster.new_topics import check_name
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS, ConfigKey, ConfigType, TopicConfigKey
from spark_kafka_sink.broker.handlers.common import check_right, repeated
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.server_properties import ConfigValue, broker_values, topic_values
from spark_kafka_sink.protocol.apis import cluster, configs
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
        check_right(services, request, operation, AclResourceType.TOPIC, name)
    elif kind == ResourceType.GROUP:
        check_right(services, request, operation, AclResourceType.GROUP, name)
    else:
        check_right(services, request, operation, AclResourceType.CLUSTER, CLUSTER_NAME)


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
        raise ApiException(ErrorCode.INVALID_REQUEST, "The embedded broker does not alter configs of brokers.")
    else:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _refuse_nulls(names: Iterable[str]) -> None:
    if listed := ", ".join(names):
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {listed}")


def handle_describe_configs(services: BrokerServices, request: Request) -> configs.DescribeConfigsResponse:
    body: configs.DescribeConfigsRequest = request.body
    for resource in body.resources:
        if resource.resource_type not in set(ResourceType):  # as in Kafka, the whole request is refused
            text = f"Unexpected resource type {resource.resource_type} for resource {resource.resource_name}"
            raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return configs.DescribeConfigsResponse(
        results=tuple(_description(services, request, resource) for resource in body.resources)
    )


def _description(
    services: BrokerServices, request: Request, resource: configs.DescribeConfigsResource
) -> configs.DescribeConfigsResult:
    body: configs.DescribeConfigsRequest = request.body
    where = resource.resource_type, resource.resource_name
    try:
        _check_right(services, request, AclOperation.DESCRIBE_CONFIGS, *where)
        described = _described_configs(services, resource)
    except ApiException as error:
        return configs.DescribeConfigsResult(error.code, error.message or "", *where)
    keys, documented = resource.configuration_keys, body.include_documentation
    found = tuple(_described_config(each, documented) for each in described if not keys or each.key.name in keys)
    return configs.DescribeConfigsResult(ErrorCode.NONE, "", *where, found)


def _described_configs(services: BrokerServices, resource: configs.DescribeConfigsResource) -> list[ConfigValue]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        check_name(name)
        topic = services.cluster.image.topics.get(name)
        if topic is None:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_values(services.config, topic.configs)
    if resource.resource_type != ResourceType.BROKER:
        kind = ResourceType(resource.resource_type).name
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    if not name:
        return []  # those that were set for all brokers
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal() or len(digits) > 10:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != services.node_id:
        text = f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"
        raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return broker_values(services.config, services.node_id)


def _described_config(config: ConfigValue, documented: bool) -> configs.DescribeConfigsResourceResult:
    key = config.key
    return configs.DescribeConfigsResourceResult(
        key.name,
        None if key.is_sensitive else config.text,
        not isinstance(key, TopicConfigKey),
        config.source,
        key.is_sensitive,
        config_type=key.type,
        documentation=key.doc if documented else None,
    )


def handle_alter_configs(services: BrokerServices, request: Request) -> cluster.AlterConfigsResponse:
    """Replaces all configs. Those that are not in the request are unset."""
    result = cluster.AlterConfigsResourceResponse
    return cluster.AlterConfigsResponse(responses=_altered(services, request, _replaced, result))


def _replaced(resource: cluster.AlterConfigsResource) -> ConfigChange:
    _refuse_nulls(config.name for config in resource.configs if config.value is None)
    replaced = {config.name: config.value for config in resource.configs if config.value is not None}
    return lambda current: replaced


class OpType(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_LIST_OPS: Final[Mapping[int, Callable[[list[str], list[str]], list[str]]]] = {
    OpType.APPEND: lambda old, given: old + [part for part in dict.fromkeys(given) if part not in old],
    OpType.SUBTRACT: lambda old, given: [part for part in old if part not in given],
}


def handle_incremental_alter_configs(services: BrokerServices, request: Request) -> configs.IncrementalAlterConfigsResponse:
    """Sets, deletes, extends or shrinks single configs. The others are unchanged."""
    result = configs.AlterConfigsResourceResponse
    return configs.IncrementalAlterConfigsResponse(responses=_altered(services, request, _changed, result))


def _changed(resource: configs.AlterConfigsResource) -> ConfigChange:
    asked = resource.configs
    _refuse_nulls(config.name for config in asked if config.value is None and config.config_operation != OpType.DELETE)

    def change(current: Mapping[str, str]) -> Mapping[str, str]:
        changed = dict(current)
        for config in asked:
            value = _changed_value(config, current.get(config.name), TOPIC_CONFIGS.get(config.name))
            if value is None:
                changed.pop(config.name, None)
            else:
                changed[config.name] = value
        return changed

    return change


def _changed_value(config: configs.AlterableConfig, current: str | None, key: ConfigKey | None) -> str | None:
    """Returns the new value; None unsets it."""
    if config.config_operation == OpType.SET:
        return config.value
    if config.config_operation == OpType.DELETE:
        return None
    combine = _LIST_OPS.get(config.config_operation)
    if combine is None:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    if key is None or key.type is not ConfigType.LIST:
        op = OpType(config.config_operation).name
        raise ApiException(ErrorCode.INVALID_CONFIG, f"Can't {op} to key {config.name} because its type is not LIST.")
    # Kafka's default is extended, not the broker's value (`ConfigurationControlManager.getParts`).
    old = key.text(key.default) if current is None else current
    return ",".join(combine([part for part in (old or "").split(",") if part], (config.value or "").split(",")))
