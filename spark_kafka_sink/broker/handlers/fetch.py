"""Handlers for reads: records (Fetch), bounds of partitions (ListOffsets), ends of epochs (OffsetForLeaderEpoch)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.broker.acl import AclOperation, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.handlers.common import (
    check_right,
    current_leader,
    deferred_response,
    is_allowed,
    node_endpoints,
    topic_name,
)
from spark_kafka_sink.broker.log.log_manager import LedPartition
from spark_kafka_sink.broker.log.log_types import FetchDataInfo, IsolationLevel, TimestampAndOffset
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.timer import DelayedOperation
from spark_kafka_sink.protocol.apis import fetch
from spark_kafka_sink.protocol.apis import partition_offsets as offsets
from spark_kafka_sink.protocol.apis.partition_offsets import ListOffsetsTimestamp
from spark_kafka_sink.protocol.error_codes import ErrorCode


def isolation_level(level: int) -> IsolationLevel:
    """Returns the isolation level. Raises UNKNOWN_SERVER_ERROR for an unknown one, as Kafka does (`IsolationLevel.forId`)."""
    try:
        return IsolationLevel(level)
    except ValueError:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR) from None


NO_SESSION = 0
_FIRST_BY_ID = 13
_UNKNOWN_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_FINAL_EPOCH, _INITIAL_EPOCH = -1, 0


def handle_fetch(services: BrokerServices, request: Request) -> fetch.FetchResponse | None:
    """Answers at once if there is enough to read; otherwise as soon as there is, or when the client's wait time ends."""
    body: fetch.FetchRequest = request.body
    # This broker has no fetch sessions (KIP-227). A client that requests one gets 0 and continues without, as with a full session
    # cache in Kafka.
    if body.session_epoch not in (_FINAL_EPOCH, _INITIAL_EPOCH):
        unknown = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if body.session_id != NO_SESSION else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return fetch.FetchResponse(error_code=unknown)
    reads = _Fetch(services, request)
    if reads.is_enough() or body.max_wait_ms <= 0:
        return reads.response()
    operation = DelayedOperation(reads.is_enough, reads.answer)
    services.fetch_purgatory.try_complete_else_watch(operation, reads.keys, body.max_wait_ms)
    return None


@dataclass(frozen=True, slots=True)
class _Read:
    """The result of one partition: the data, or the error."""

    index: int
    topic: str
    result: FetchDataInfo | ApiException

    @property
    def size(self) -> int:
        return 0 if isinstance(self.result, ApiException) else self.result.size


class _Fetch:
    """A Fetch that reads, perhaps repeatedly, until it has enough. One thread reads at a time (DelayedOperation's lock).

    It keeps no data while it waits, because 500 waiting clients would hold 55 MB each.
    """

    def __init__(self, services: BrokerServices, request: Request) -> None:
        self._services = services
        self._request = request
        self._body: fetch.FetchRequest = request.body
        self._isolation = isolation_level(self._body.isolation_level)
        self._reads: list[list[_Read]] | None = None
        self.keys: list[tuple[str, int]] = []

    def is_enough(self) -> bool:
        """Reads the current data. It is enough if a partition fails, or if only another Fetch can return more (DelayedFetch, case
        F).
        """
        by_topic = self._read_all()
        reads = [read for topic in by_topic for read in topic]
        self.keys = [(read.topic, read.index) for read in reads]
        enough = (
            not reads
            or any(isinstance(read.result, ApiException) or read.result.is_behind for read in reads)
            or sum(read.size for read in reads) >= self._body.min_bytes
        )
        self._reads = by_topic if enough else None
        return enough

    def answer(self) -> None:
        with deferred_response(self._request):
            self._reads = self._read_all()  # the wait may have ended with less data than requested
            self._request.answer(self.response())

    def response(self) -> fetch.FetchResponse:
        by_topic = self._read_all() if self._reads is None else self._reads
        image = self._services.cluster.image
        topics = tuple(
            fetch.FetchableTopicResponse(topic.topic, topic.topic_id, tuple(_partition(image, read) for read in reads))
            for topic, reads in zip(self._body.topics, by_topic, strict=True)
        )
        leaders = {
            partition.current_leader.leader_id
            for topic in topics
            for partition in topic.partitions
            if partition.current_leader is not None
        }
        return fetch.FetchResponse(
            session_id=NO_SESSION, responses=topics, node_endpoints=node_endpoints(image, leaders, self._request.listener)
        )

    def _read_all(self) -> list[list[_Read]]:
        left = min(self._body.max_bytes, self._services.config.fetch_max_bytes)
        whole = True  # the first batch is complete, or a consumer could never get past a large one (KIP-74)
        by_topic = []
        for topic in self._body.topics:
            reads = []
            for asked in topic.partitions:
                read = self._read(topic, asked, left, whole=whole)
                left -= read.size
                whole = whole and not read.size
                reads.append(read)
            by_topic.append(reads)
        return by_topic

    def _read(self, topic: fetch.FetchTopic, asked: fetch.FetchPartition, left: int, *, whole: bool) -> _Read:
        image = self._services.cluster.image
        name = ""
        try:
            name = topic_name(image, topic.topic, topic.topic_id, by_id=self._request.version >= _FIRST_BY_ID)
            check_right(self._services, self._request, AclOperation.READ, ResourceType.TOPIC, name)
            led = self._services.replica_manager.led(name, asked.partition, asked.current_leader_epoch)
            max_bytes = max(0, min(asked.partition_max_bytes, left))
            found = led.log.read(asked.fetch_offset, max_bytes, self._isolation, min_one_batch=whole)
        except ApiException as error:
            return _Read(asked.partition, name, error)
        return _Read(asked.partition, name, found)


def _partition(image: MetadataImage, read: _Read) -> fetch.PartitionData:
    result = read.result
    if isinstance(result, ApiException):
        moved = result.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        leader = current_leader(image, read.topic, read.index) if moved else None
        # Kafka returns an empty array if its metadata has no such partition, and null if its log does not answer.
        none = () if result.code in _UNKNOWN_CODES else None
        return fetch.PartitionData(read.index, result.code, -1, aborted_transactions=none, records=(), current_leader=leader)
    aborted = result.aborted_transactions
    return fetch.PartitionData(
        read.index,
        ErrorCode.NONE,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        None if aborted is None else tuple(fetch.AbortedTransaction(*each) for each in aborted),
        records=result.records,
    )


# The first version of each of them (ListOffsetsRequest.Builder). Older ones get the error of an unknown time.
_FIRST_WITH_TIMESTAMP: Final[Mapping[int, int]] = {
    ListOffsetsTimestamp.MAX_TIMESTAMP: 7,
    ListOffsetsTimestamp.EARLIEST_LOCAL: 8,
    ListOffsetsTimestamp.LATEST_TIERED: 9,
}
_FIRST_WITH_LEADER_EPOCH: Final = 4
"""The first version with a field for it (`ReplicaManager.fetchOffset`)."""
_EARLIEST = (ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL)
_UNKNOWN_OFFSET = TimestampAndOffset(-1, -1, -1)


def handle_list_offsets(services: BrokerServices, request: Request) -> offsets.ListOffsetsResponse:
    body: offsets.ListOffsetsRequest = request.body
    isolation = isolation_level(body.isolation_level)
    counts = Counter((topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions)

    def answered(topic: str, partition: offsets.ListOffsetsPartition) -> offsets.ListOffsetsPartitionResponse:
        try:
            check_right(services, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
            if counts[topic, partition.partition_index] > 1:
                raise ApiException(ErrorCode.INVALID_REQUEST)
            found = _listed_offset(services, request, topic, partition, isolation)
        except ApiException as error:
            return offsets.ListOffsetsPartitionResponse(partition.partition_index, error.code)
        epoch = found.leader_epoch if request.version >= _FIRST_WITH_LEADER_EPOCH else -1
        return offsets.ListOffsetsPartitionResponse(
            partition.partition_index, ErrorCode.NONE, found.timestamp, found.offset, epoch
        )

    return offsets.ListOffsetsResponse(
        topics=tuple(
            offsets.ListOffsetsTopicResponse(topic.name, tuple(answered(topic.name, partition) for partition in topic.partitions))
            for topic in body.topics
        )
    )


def _listed_offset(
    services: BrokerServices, request: Request, topic: str, partition: offsets.ListOffsetsPartition, isolation: IsolationLevel
) -> TimestampAndOffset:
    timestamp = partition.timestamp
    if request.version < _FIRST_WITH_TIMESTAMP.get(timestamp, 0) or timestamp < min(ListOffsetsTimestamp):
        raise ApiException(ErrorCode.UNSUPPORTED_VERSION)
    led = services.replica_manager.led(topic, partition.partition_index, partition.current_leader_epoch)
    log = led.log
    found = log.fetch_offset_by_timestamp(timestamp) or _UNKNOWN_OFFSET
    end = log.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else log.high_watermark
    if timestamp == ListOffsetsTimestamp.LATEST:
        return found._replace(offset=end, leader_epoch=led.state.leader_epoch)
    if timestamp in _EARLIEST and log.latest_epoch < 0:
        # Kafka's log knows an epoch as soon as its leader takes over, this one when it first writes.
        return found._replace(leader_epoch=led.state.leader_epoch)
    # A consumer must not get a record that it cannot fetch yet (`Partition.fetchOffsetForTimestamp`).
    return found if timestamp < 0 or found.offset < end else _UNKNOWN_OFFSET


def handle_offset_for_leader_epoch(services: BrokerServices, request: Request) -> offsets.OffsetForLeaderEpochResponse:
    """Returns the end of an epoch, so that a consumer can detect that its position was truncated (KIP-320)."""
    body: offsets.OffsetForLeaderEpochRequest = request.body
    sees_all = is_allowed(services, request, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, logged=False)

    def answered(topic: str, asked: offsets.OffsetForLeaderPartition) -> offsets.EpochEndOffset:
        try:
            if not sees_all:
                check_right(services, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
            led = services.replica_manager.led(topic, asked.partition, asked.current_leader_epoch)
            end = _epoch_and_offset(led, asked.leader_epoch)
        except ApiException as error:
            return offsets.EpochEndOffset(error.code, asked.partition)
        return offsets.EpochEndOffset(ErrorCode.NONE, asked.partition, *end)

    return offsets.OffsetForLeaderEpochResponse(
        topics=tuple(
            offsets.OffsetForLeaderTopicResult(topic.topic, tuple(answered(topic.topic, asked) for asked in topic.partitions))
            for topic in body.topics
        )
    )


def _epoch_and_offset(led: LedPartition, epoch: int) -> tuple[int, int]:
    log, latest, current = led.log, led.log.latest_epoch, led.state.leader_epoch
    if latest < epoch <= current and epoch >= 0:
        # Kafka's log knows an epoch as soon as its leader takes over, this one when it first writes.
        known = epoch if epoch == current or latest < 0 else latest
        return known, log.log_end_offset
    found = log.end_offset_for_epoch(epoch)
    return (-1, -1) if found is None else (found.epoch, found.start_offset)
