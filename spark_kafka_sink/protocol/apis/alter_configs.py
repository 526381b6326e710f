"""AlterConfigs (33) replaces all configs of a resource. IncrementalAlterConfigs is its successor."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT8, INT16, INT32, STRING, ArrayOf


@message
class AlterableConfig(Message):
    """A config to set. The value None stands for the default."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@message
class AlterConfigsResource(Message):
    """A resource and its configs. `resource_type` has the codes of DescribeConfigs."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[AlterableConfig] = wire(ArrayOf(AlterableConfig), default=())


@message
class AlterConfigsRequest(Message):
    resources: Sequence[AlterConfigsResource] = wire(ArrayOf(AlterConfigsResource), default=())
    validate_only: bool = wire(BOOLEAN, default=False)


@message
class AlterConfigsResourceResponse(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message
class AlterConfigsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[AlterConfigsResourceResponse] = wire(ArrayOf(AlterConfigsResourceResponse), default=())


ALTER_CONFIGS = Api(ApiKey.ALTER_CONFIGS, 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse)
