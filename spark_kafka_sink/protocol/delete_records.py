"""DeleteRecords (21): moves the start of partitions, so that the records before it are gone."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT16, INT32, INT64, STRING, ArrayOf


@message
class DeleteRecordsPartition(Message):
    """-1 is the high watermark."""

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
    """`low_watermark` is the new start, -1 where there is an error."""

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
