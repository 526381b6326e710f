"""CreatePartitions (37): more partitions for existing topics."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import BOOLEAN, INT16, INT32, STRING, ArrayOf


@message
class CreatePartitionsAssignment(Message):
    """Of one new partition; the first is the preferred leader."""

    broker_ids: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class CreatePartitionsTopic(Message):
    """`count` is that of all partitions, old and new; `assignments` None: the cluster places the new ones."""

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
