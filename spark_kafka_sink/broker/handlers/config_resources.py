"""What has configs: topics, one broker, and all brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, TypeVar

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.broker_settings import EVERY_BROKER
from spark_kafka_sink.broker.cluster.cluster import ConfigChange
from spark_kafka_sink.broker.handlers.repeated import repeated
from spark_kafka_sink.protocol.error_codes import ErrorCode

T = TypeVar("T")
Resource = Any
"""AlterConfigsResource of the old or the new API: both have a type, a name and configs."""


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type; this broker has configs of the first two."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def altered(
    services: BrokerServices,
    resources: Iterable[Resource],
    change_of: Callable[[Resource], ConfigChange],
    result: Callable[[ErrorCode, str | None, int, str], T],
    *,
    validate_only: bool,
) -> tuple[T, ...]:
    """One result for each. `change_of` says what becomes of a resource's configs."""
    every = tuple(resources)
    twice = repeated((resource.resource_type, resource.resource_name) for resource in every)

    def result_of(resource: Resource) -> T:
        where = resource.resource_type, resource.resource_name
        try:
            if where in twice:
                raise ApiException(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _alter(services, resource, change_of, validate_only=validate_only)
        except ApiException as error:
            return result(error.code, error.message, *where)
        return result(ErrorCode.NONE, None, *where)

    return tuple(map(result_of, every))


def _alter(
    services: BrokerServices, resource: Resource, change_of: Callable[[Resource], ConfigChange], *, validate_only: bool
) -> None:
    if repeated(config.name for config in resource.configs):
        raise ApiException(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    change = change_of(resource)
    if resource.resource_type == ResourceType.TOPIC:
        services.cluster.alter_topic_configs(resource.resource_name, change, validate_only=validate_only)
    elif resource.resource_type == ResourceType.BROKER:
        node_id = _broker(services, resource.resource_name)
        services.cluster.alter_broker_configs(node_id, change, validate_only=validate_only)
    else:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _broker(services: BrokerServices, name: str) -> int:
    """A broker alters its own configs and those of all."""
    if not name:
        return EVERY_BROKER
    if parsed_id(name, f"Node id must be an integer, but it is: {name}") != services.node_id:
        text = f"Unexpected broker id, expected {services.node_id}, but received {name}"
        raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return services.node_id


def parsed_id(name: str, otherwise: str) -> int:
    """A broker's id. Raises INVALID_REQUEST with the text `otherwise`."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal() or len(digits) > 10:
        raise ApiException(ErrorCode.INVALID_REQUEST, otherwise)
    return int(name)


def refuse_nulls(names: Iterable[str]) -> None:
    """`names`: of configs that were to be set to nothing."""
    if listed := ", ".join(names):
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {listed}")
