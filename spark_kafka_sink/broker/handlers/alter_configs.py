"""AlterConfigs, the old one: what it does not name is no longer set."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.cluster import ConfigChange
from spark_kafka_sink.broker.handlers.config_resources import altered, refuse_nulls
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from spark_kafka_sink.protocol.fields import Message


def handle_alter_configs(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, AlterConfigsRequest)
    responses = altered(services, body.resources, _replaced, AlterConfigsResourceResponse, validate_only=body.validate_only)
    return AlterConfigsResponse(responses=responses)


def _replaced(resource: AlterConfigsResource) -> ConfigChange:
    refuse_nulls(config.name for config in resource.configs if config.value is None)
    wanted = {config.name: config.value for config in resource.configs if config.value is not None}
    return lambda current: wanted
