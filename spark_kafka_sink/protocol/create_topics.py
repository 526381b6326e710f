"""CreateTopics (19): new topics, with partitions spread by the cluster or placed by the caller."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT8, INT16, INT32, STRING, UUID, ZERO_UUID, ArrayOf


@message
class CreatableReplicaAssignment(Message):
    """The first of `broker_ids` is the preferred leader."""

    partition_index: int = wire(INT32)
    broker_ids: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class CreatableTopicConfig(Message):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@message
class CreatableTopic(Message):
    """-1 partitions or replicas: the cluster's default (v4 on, KIP-464), and what must be there with `assignments`."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: Sequence[CreatableReplicaAssignment] = wire(ArrayOf(CreatableReplicaAssignment), default=())
    configs: Sequence[CreatableTopicConfig] = wire(ArrayOf(CreatableTopicConfig), default=())


@message
class CreateTopicsRequest(Message):
    topics: Sequence[CreatableTopic] = wire(ArrayOf(CreatableTopic), default=())
    timeout_ms: int = wire(INT32, default=60_000)
    validate_only: bool = wire(BOOLEAN, default=False)


@message
class CreatableTopicConfigs(Message):
    """`config_source` as in DescribeConfigs."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    read_only: bool = wire(BOOLEAN)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOLEAN, default=False)


@message
class CreatableTopicResult(Message):
    """From v5 what was made (KIP-525), unless `topic_config_error_code` says why the caller may not know."""

    name: str = wire(STRING)
    topic_id: uuid.UUID = wire(UUID, since=7, default=ZERO_UUID, ignorable=True)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    num_partitions: int = wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = wire(INT16, since=5, default=-1, ignorable=True)
    configs: Sequence[CreatableTopicConfigs] | None = wire(
        ArrayOf(CreatableTopicConfigs), since=5, nullable_since=5, default=(), ignorable=True
    )
    topic_config_error_code: int = wire(INT16, since=5, tag=0, default=0)


@message
class CreateTopicsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[CreatableTopicResult] = wire(ArrayOf(CreatableTopicResult), default=())


CREATE_TOPICS = Api(ApiKey.CREATE_TOPICS, 2, 7, 5, CreateTopicsRequest, CreateTopicsResponse)
