"""ListOffsets: where a partition begins and ends, and the first record of a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.isolation import isolation_level
from spark_kafka_sink.broker.log.local_log import ListOffsetsTimestamp
from spark_kafka_sink.broker.log.log_types import IsolationLevel, TimestampAndOffset
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

# The version that has each of them (ListOffsetsRequest.Builder); who asks earlier is refused as for an unknown time.
_FIRST_VERSIONS: Final[Mapping[int, int]] = {
    ListOffsetsTimestamp.MAX_TIMESTAMP: 7,
    ListOffsetsTimestamp.EARLIEST_LOCAL: 8,
    ListOffsetsTimestamp.LATEST_TIERED: 9,
}
_FIRST_WITH_LEADER_EPOCH: Final = 4
"""Before it there is no place for one (`ReplicaManager.fetchOffset`)."""
_EARLIEST = (ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL)
_UNKNOWN = TimestampAndOffset(-1, -1, -1)


def handle_list_offsets(services: BrokerServices, request: Request) -> ListOffsetsResponse:
    body: ListOffsetsRequest = request.body
    isolation = isolation_level(body.isolation_level)
    counts = Counter((topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions)

    def answered(topic: str, partition: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        try:
            if counts[topic, partition.partition_index] > 1:
                raise ApiException(ErrorCode.INVALID_REQUEST)
            found = _found(services, request, topic, partition, isolation)
        except ApiException as error:
            return ListOffsetsPartitionResponse(partition.partition_index, error.code)
        epoch = found.leader_epoch if request.version >= _FIRST_WITH_LEADER_EPOCH else -1
        return ListOffsetsPartitionResponse(partition.partition_index, ErrorCode.NONE, found.timestamp, found.offset, epoch)

    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(topic.name, tuple(answered(topic.name, partition) for partition in topic.partitions))
            for topic in body.topics
        )
    )


def _found(
    services: BrokerServices, request: Request, topic: str, partition: ListOffsetsPartition, isolation: IsolationLevel
) -> TimestampAndOffset:
    timestamp = partition.timestamp
    if request.version < _FIRST_VERSIONS.get(timestamp, 0) or timestamp < min(ListOffsetsTimestamp):
        raise ApiException(ErrorCode.UNSUPPORTED_VERSION)
    led = services.replica_manager.led(topic, partition.partition_index, partition.current_leader_epoch)
    log = led.log
    found = log.fetch_offset_by_timestamp(timestamp) or _UNKNOWN
    end = log.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else log.high_watermark
    if timestamp == ListOffsetsTimestamp.LATEST:
        return found._replace(offset=end, leader_epoch=led.state.leader_epoch)
    if timestamp in _EARLIEST and log.latest_epoch < 0:
        # Kafka's log knows of an epoch when its leader takes over, ours when it first writes.
        return found._replace(leader_epoch=led.state.leader_epoch)
    # A consumer is told of no record that it could not fetch yet (`Partition.fetchOffsetForTimestamp`).
    return found if timestamp < 0 or found.offset < end else _UNKNOWN
