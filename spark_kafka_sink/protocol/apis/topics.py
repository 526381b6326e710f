"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    ArrayOf,
    Message,
    message,
    wire,
)

# CreateTopics (19): new topics, whose partitions are placed by the cluster or by the caller.


@message
class CreatableReplicaAssignment(Message):
    """The replicas of a partition. The first of `broker_ids` is the preferred leader."""

    partition_index: int = wire(INT32)
    broker_ids: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class CreatableTopicConfig(Message):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@message
class CreatableTopic(Message):
    """A topic to create. -1 partitions or replicas is the cluster's default (from v4 on, KIP-464); with `assignments` both must
    be -1.
    """

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
    """A config of the created topic. `config_source` has the codes of DescribeConfigs."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    read_only: bool = wire(BOOLEAN)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOLEAN, default=False)


@message
class CreatableTopicResult(Message):
    """The result. From v5 on it describes the topic (KIP-525), unless `topic_config_error_code` is set."""

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


# DeleteTopics (20): topics by name; from v6 on by name or id (KIP-516).


@message
class DeleteTopicState(Message):
    """A topic by id (`name` is None) or by name (`topic_id` is ZERO_UUID)."""

    name: str | None = wire(STRING, nullable_since=0, default=None)
    topic_id: uuid.UUID = wire(UUID, default=ZERO_UUID)


@message
class DeleteTopicsRequest(Message):
    """A request to delete: up to v5 `topic_names`, from v6 on `topics`."""

    topics: Sequence[DeleteTopicState] = wire(ArrayOf(DeleteTopicState), since=6, default=())
    topic_names: Sequence[str] = wire(ArrayOf(STRING), until=5, default=(), ignorable=True)
    timeout_ms: int = wire(INT32, default=0)


@message
class DeletableTopicResult(Message):
    """The result. `name` is None for an unknown topic requested by id."""

    name: str | None = wire(STRING, nullable_since=6)
    topic_id: uuid.UUID = wire(UUID, since=6, default=ZERO_UUID, ignorable=True)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)


@message
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[DeletableTopicResult] = wire(ArrayOf(DeletableTopicResult), default=())


DELETE_TOPICS = Api(ApiKey.DELETE_TOPICS, 1, 6, 4, DeleteTopicsRequest, DeleteTopicsResponse)


# CreatePartitions (37): more partitions for existing topics.


@message
class CreatePartitionsAssignment(Message):
    """The replicas of one new partition. The first is the preferred leader."""

    broker_ids: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class CreatePartitionsTopic(Message):
    """A topic. `count` is the number of all partitions, old and new. `assignments` None: the cluster places the new ones."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: Sequence[CreatePartitionsAssignment] | None = wire(ArrayOf(CreatePartitionsAssignment), nullable_since=0)


@message
class CreatePartitionsRequest(Message):
    topics: Sequence[CreatePartitionsTopic] = wire(ArrayOf(CreatePartitionsTopic), default=())
    timeout_ms: int = wire(INT32, default=0)
    validate_only: bool = wire(BOOLEAN, default=False)


@message
class CreatePartitionsTopicResult(Message):
    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)


@message
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[CreatePartitionsTopicResult] = wire(ArrayOf(CreatePartitionsTopicResult), default=())


CREATE_PARTITIONS = Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2, CreatePartitionsRequest, CreatePartitionsResponse)


# DeleteRecords (21): moves the start of partitions and deletes the records before it.


@message
class DeleteRecordsPartition(Message):
    """A partition. The offset -1 is the high watermark."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@message
class DeleteRecordsTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[DeleteRecordsPartition] = wire(ArrayOf(DeleteRecordsPartition), default=())


@message
class DeleteRecordsRequest(Message):
    topics: Sequence[DeleteRecordsTopic] = wire(ArrayOf(DeleteRecordsTopic), default=())
    timeout_ms: int = wire(INT32, default=0)


@message
class DeleteRecordsPartitionResult(Message):
    """The result. `low_watermark` is the new start; -1 after an error."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@message
class DeleteRecordsTopicResult(Message):
    name: str = wire(STRING)
    partitions: Sequence[DeleteRecordsPartitionResult] = wire(ArrayOf(DeleteRecordsPartitionResult), default=())


@message
class DeleteRecordsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[DeleteRecordsTopicResult] = wire(ArrayOf(DeleteRecordsTopicResult), default=())


DELETE_RECORDS = Api(ApiKey.DELETE_RECORDS, 0, 2, 2, DeleteRecordsRequest, DeleteRecordsResponse)
