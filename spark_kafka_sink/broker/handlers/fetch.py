"""Fetch: what is there at once if it is enough, else what is there when it is, or when the time is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.handlers.isolation import isolation_level
from spark_kafka_sink.broker.handlers.later import answering
from spark_kafka_sink.broker.handlers.topics_asked import current_leader, node_endpoints, topic_name
from spark_kafka_sink.broker.log.log_types import FetchDataInfo
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.purgatory import DelayedOperation
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NO_SESSION = 0
_FIRST_BY_ID = 13
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_FINAL_EPOCH, _INITIAL_EPOCH = -1, 0


def handle_fetch(services: BrokerServices, request: Request) -> FetchResponse | None:
    body: FetchRequest = request.body
    refused = _session_error(body)
    if refused is not None:
        return FetchResponse(error_code=refused)
    fetch = _Fetch(services, request)
    if fetch.is_enough() or body.max_wait_ms <= 0:
        return fetch.response()
    operation = DelayedOperation(fetch.is_enough, fetch.answer)
    services.fetch_purgatory.try_complete_else_watch(operation, fetch.keys, body.max_wait_ms)
    return None


def _session_error(body: FetchRequest) -> ErrorCode | None:
    """This broker gives out no sessions (KIP-227): a client that asks for one is told 0 and goes on without, as it does with a
    Kafka whose session cache is full."""
    if body.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
        return None
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND if body.session_id != NO_SESSION else ErrorCode.INVALID_FETCH_SESSION_EPOCH


@dataclass(frozen=True, slots=True)
class _Read:
    """One partition's part: what was read, or why nothing was."""

    index: int
    topic: str
    result: FetchDataInfo | ApiException

    @property
    def size(self) -> int:
        return 0 if isinstance(self.result, ApiException) else self.result.size


class _Fetch:
    """A Fetch that is read, perhaps several times, until it has enough. Reads come one at a time (DelayedOperation's lock).

    While it waits it holds nothing of what it read, or 500 clients that wait for more would hold 55 MB each.
    """

    def __init__(self, services: BrokerServices, request: Request) -> None:
        self._services = services
        self._request = request
        self._body: FetchRequest = request.body
        self._isolation = isolation_level(self._body.isolation_level)
        self._reads: list[list[_Read]] | None = None
        self.keys: list[tuple[str, int]] = []

    def is_enough(self) -> bool:
        """Reads what is there now. A partition that fails is news as well, and one where more comes only with another Fetch is
        not to be waited for (DelayedFetch, case F)."""
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
        with answering(self._request):
            self._reads = self._read_all()  # the time may be over with a part of what was wanted
            self._request.answer(self.response())

    def response(self) -> FetchResponse:
        by_topic = self._read_all() if self._reads is None else self._reads
        image = self._services.cluster.image
        topics = tuple(
            FetchableTopicResponse(topic.topic, topic.topic_id, tuple(_partition(image, read) for read in reads))
            for topic, reads in zip(self._body.topics, by_topic, strict=True)
        )
        leaders = {
            partition.current_leader.leader_id
            for topic in topics
            for partition in topic.partitions
            if partition.current_leader is not None
        }
        return FetchResponse(
            session_id=NO_SESSION, responses=topics, node_endpoints=node_endpoints(image, leaders, self._request.listener)
        )

    def _read_all(self) -> list[list[_Read]]:
        budget = _Budget(min(self._body.max_bytes, self._services.config.fetch_max_bytes))
        return [[self._read(topic, partition, budget) for partition in topic.partitions] for topic in self._body.topics]

    def _read(self, topic: FetchTopic, asked: FetchPartition, budget: _Budget) -> _Read:
        image = self._services.cluster.image
        name = ""
        try:
            name = topic_name(image, topic.topic, topic.topic_id, by_id=self._request.version >= _FIRST_BY_ID)
            found = self._services.replica_manager.read(
                name,
                asked.partition,
                asked.fetch_offset,
                max(0, min(asked.partition_max_bytes, budget.left)),
                self._isolation,
                asked.current_leader_epoch,
                whole=budget.is_whole,
            )
        except ApiException as error:
            return _Read(asked.partition, name, error)
        budget.take(found.size)
        return _Read(asked.partition, name, found)


class _Budget:
    """Bytes of the whole answer. Its first batch comes whole, or a consumer would never get past a large one (KIP-74)."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.is_whole = True

    def take(self, size: int) -> None:
        self.left -= size
        self.is_whole = self.is_whole and not size


def _partition(image: MetadataImage, read: _Read) -> PartitionData:
    result = read.result
    if isinstance(result, ApiException):
        moved = result.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        leader = current_leader(image, read.topic, read.index) if moved else None
        # Kafka has an empty array where its metadata know of no such partition, and null where its log does not answer.
        aborted = () if result.code in _UNKNOWN else None
        return PartitionData(read.index, result.code, -1, aborted_transactions=aborted, records=(), current_leader=leader)
    return PartitionData(
        read.index,
        ErrorCode.NONE,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        _aborted(result),
        records=result.records,
    )


def _aborted(result: FetchDataInfo) -> Sequence[AbortedTransaction] | None:
    if result.aborted_transactions is None:
        return None
    return tuple(AbortedTransaction(*aborted) for aborted in result.aborted_transactions)
