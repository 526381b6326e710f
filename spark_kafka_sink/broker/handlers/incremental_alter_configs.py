"""IncrementalAlterConfigs: single configs are set, deleted, extended or shrunk; the others stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.broker_settings import BROKER_CONFIGS
from spark_kafka_sink.broker.cluster.cluster import ConfigChange
from spark_kafka_sink.broker.cluster.config_def import ConfigKey, ConfigType
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.broker.handlers.config_resources import ResourceType, altered, refuse_nulls
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message


class OpType(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3

    def __str__(self) -> str:
        return self.name.lower()


# Topics are checked by Kafka's controller, brokers by themselves.
_NO_LIST_OF_TOPIC: Final = "Can't {op.name} to key {key} because its type is not LIST."
_NO_LIST_OF_BROKER: Final = "Config value {op} is not allowed for config key: {key}"

_Combine: TypeAlias = Callable[[list[str], list[str]], list[str]]

_LIST_OPS: Final[Mapping[int, _Combine]] = {
    OpType.APPEND: lambda old, given: old + [part for part in dict.fromkeys(given) if part not in old],
    OpType.SUBTRACT: lambda old, given: [part for part in old if part not in given],
}


def handle_incremental_alter_configs(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, IncrementalAlterConfigsRequest)
    responses = altered(services, body.resources, _changed, AlterConfigsResourceResponse, validate_only=body.validate_only)
    return IncrementalAlterConfigsResponse(responses=responses)


def _changed(resource: AlterConfigsResource) -> ConfigChange:
    configs = resource.configs
    refuse_nulls(config.name for config in configs if config.value is None and config.config_operation != OpType.DELETE)
    of_topic = resource.resource_type == ResourceType.TOPIC
    keys: Mapping[str, ConfigKey] = TOPIC_CONFIGS if of_topic else BROKER_CONFIGS
    refusal = _NO_LIST_OF_TOPIC if of_topic else _NO_LIST_OF_BROKER

    def change(current: Mapping[str, str]) -> Mapping[str, str]:
        changed = dict(current)
        for config in configs:
            value = _value(config, current.get(config.name), keys.get(config.name), refusal)
            if value is None:
                changed.pop(config.name, None)
            else:
                changed[config.name] = value
        return changed

    return change


def _value(config: AlterableConfig, current: str | None, key: ConfigKey | None, refusal: str) -> str | None:
    """What it is to be from now on; None: not set any more. `refusal`: the words for a config that is no list."""
    if config.config_operation == OpType.SET:
        return config.value
    if config.config_operation == OpType.DELETE:
        return None
    combine = _LIST_OPS.get(config.config_operation)
    if combine is None:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    if key is None or key.type is not ConfigType.LIST:
        raise ApiException(ErrorCode.INVALID_CONFIG, refusal.format(op=OpType(config.config_operation), key=config.name))
    # What Kafka's default has is extended, not what brokers have (`ConfigurationControlManager.getParts`).
    old = key.text(key.default) if current is None else current
    return ",".join(combine([part for part in (old or "").split(",") if part], (config.value or "").split(",")))
