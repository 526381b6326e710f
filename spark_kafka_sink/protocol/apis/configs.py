"""DescribeConfigs and IncrementalAlterConfigs. The older AlterConfigs is in cluster.py."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import BOOLEAN, INT8, INT16, INT32, STRING, ArrayOf, Message, message, wire

# DescribeConfigs (32): the configs of topics, brokers, loggers and groups, and the source of each value.


@message
class DescribeConfigsResource(Message):
    """A resource to describe. `resource_type`: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group. No keys: all configs."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: Sequence[str] | None = wire(ArrayOf(STRING), nullable_since=0)


@message
class DescribeConfigsRequest(Message):
    resources: Sequence[DescribeConfigsResource] = wire(ArrayOf(DescribeConfigsResource), default=())
    include_synonyms: bool = wire(BOOLEAN, default=False)
    include_documentation: bool = wire(BOOLEAN, since=3, default=False)


@message
class DescribeConfigsSynonym(Message):
    """A possible source of a value. The first of them wins."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    source: int = wire(INT8)


@message
class DescribeConfigsResourceResult(Message):
    """A config. `config_source`: 1 topic, 2 broker, 3 all brokers, 4 server.properties, 5 default, 6 logger, 7 client metrics, 8
    group.

    `config_type`: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password; 0 unknown. The value of a
    sensitive config is None.
    """

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    read_only: bool = wire(BOOLEAN)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOLEAN, default=False)
    synonyms: Sequence[DescribeConfigsSynonym] = wire(ArrayOf(DescribeConfigsSynonym), default=())
    config_type: int = wire(INT8, since=3, default=0, ignorable=True)
    documentation: str | None = wire(STRING, since=3, nullable_since=3, default=None, ignorable=True)


@message
class DescribeConfigsResult(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[DescribeConfigsResourceResult] = wire(ArrayOf(DescribeConfigsResourceResult), default=())


@message
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[DescribeConfigsResult] = wire(ArrayOf(DescribeConfigsResult), default=())


DESCRIBE_CONFIGS = Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, DescribeConfigsRequest, DescribeConfigsResponse)


# IncrementalAlterConfigs (44): sets, deletes, extends and shrinks single configs (KIP-339).


@message
class AlterableConfig(Message):
    """A change. `config_operation`: 0 set, 1 delete, 2 append to a list, 3 subtract from a list."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable_since=0)


@message
class AlterConfigsResource(Message):
    """A resource and its changes. `resource_type` has the codes of DescribeConfigs."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[AlterableConfig] = wire(ArrayOf(AlterableConfig), default=())


@message
class IncrementalAlterConfigsRequest(Message):
    resources: Sequence[AlterConfigsResource] = wire(ArrayOf(AlterConfigsResource), default=())
    validate_only: bool = wire(BOOLEAN, default=False)


@message
class AlterConfigsResourceResponse(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[AlterConfigsResourceResponse] = wire(ArrayOf(AlterConfigsResourceResponse), default=())


INCREMENTAL_ALTER_CONFIGS = Api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
)
