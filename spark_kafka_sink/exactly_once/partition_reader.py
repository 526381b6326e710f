"""Asks the leader of one partition for offsets and records, in the calling thread."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import Answer, ClusterRequest, only_one
from spark_kafka_sink.errors import DeadlineError, DisconnectedError
from spark_kafka_sink.exactly_once.commit_log_topic import leader_of
from spark_kafka_sink.exactly_once.coordinator_rounds import BACKOFF
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from spark_kafka_sink.protocol.apis.partition_offsets import (
    LATEST_TIMESTAMP,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.wire_types import ZERO_UUID
from spark_kafka_sink.records.compression import Buffer
from spark_kafka_sink.records.decoder import FetchedBatch, decode_batches

_READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_FETCH_BYTES: Final = 4 * 1024 * 1024

_LIST_OFFSETS: Final = LIST_OFFSETS.limited_to(5, LIST_OFFSETS.max_version)
"""From v5 on, a new leader that does not know the high watermark yet returns OFFSET_NOT_AVAILABLE (KIP-207). Fetch responses also
contain a high watermark, but such a leader's is outdated, and records committed since would be missed."""

_FETCH_BY_NAME: Final = FETCH.limited_to(FETCH.min_version, 12)
"""For topics without ids, as with inter.broker.protocol.version below 2.8: brokers offer later versions but find no topic by id.
Java's FetchSessionHandler does the same."""

_OTHER_LEADER: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR})
"""Besides those whose class in Java says so."""


class PartitionReader:
    """Reads one partition, whatever is in it.

    Attributes:
        topic_id: Id of the topic that is read; None before that, and from brokers whose topics have no ids.
    """

    def __init__(self, client: ClusterClient, topic: str, partition: int, grants: str | None = None) -> None:
        """grants: as for `Rights.error`."""
        self._client = client
        self._topic = topic
        self._partition = partition
        self._where = f"{topic}-{partition}"
        self._grants = grants
        self.topic_id: uuid.UUID | None = None
        self._waiting: ResponseWaiter

    def markers(self, since_ms: int, deadline: float) -> Iterator[FetchedBatch]:
        """Yields the batches with the markers of transactions, from a time in ms since the epoch to the current high watermark.

        Brokers give a marker their own time. Other records may have any, so markers of an earlier time may be yielded as well.
        """
        self._waiting = ResponseWaiter(deadline, BACKOFF)
        offsets = list[int | None]()
        while None in (offsets or [None]):
            node_id = leader_of(self._client, self._topic, self._partition, deadline)
            self.topic_id = self._client.known().topic_id(self._topic)
            requests = [self._offsets_request(node_id, timestamp) for timestamp in (since_ms, LATEST_TIMESTAMP)]
            offsets = [self._offset(answer) for answer in self._client.try_many(requests, deadline)]
            if None in offsets:
                self._waiting.again()
        start, end = (each for each in offsets if each is not None)
        if start >= 0:  # else no record is as new
            yield from (each for each in self._batches(start, end, deadline) if each.is_control)

    # Inside

    def _batches(self, position: int, end: int, deadline: float) -> Iterator[FetchedBatch]:
        """Yields the batches from `position` to the offset `end`, committed or not."""
        self._waiting = ResponseWaiter(deadline, BACKOFF)
        while position < end:
            node_id = leader_of(self._client, self._topic, self._partition, deadline)
            if self._client.known().topic_id(self._topic) != self.topic_id:
                raise ClaimLostError(f"topic {self._topic} was made again after it was read", topic=self._topic)
            (answer,) = self._client.try_many([self._fetch(node_id, position, _READ_UNCOMMITTED, 0)], deadline)
            said = self._fetched(answer)
            if said is None or not self._is_fine(said.error_code, FETCH.key):
                self._waiting.again()
                continue
            before = position
            for batch in decode_batches(data_of(said), cut_off=True):
                position = max(position, batch.last_offset + 1)
                yield batch
            if position == before:  # a new leader may not know the high watermark
                self._waiting.note(f"Fetch of {self._where}", f"no records at offset {position}, expected up to {end}")
                self._waiting.again()
            elif self._waiting.is_over and position < end:
                raise DeadlineError(f"{self._where} was read up to offset {position} of {end}", topic=self._topic)

    def _offsets_request(self, node_id: int, timestamp: int) -> ClusterRequest:
        partition = ListOffsetsPartition(
            partition_index=self._partition, current_leader_epoch=self._leader_epoch(), timestamp=timestamp
        )
        topic = ListOffsetsTopic(name=self._topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=_READ_UNCOMMITTED, topics=[topic])
        return ClusterRequest(node_id, _LIST_OFFSETS, request)

    def _fetch(self, node_id: int, position: int, isolation_level: int, wait_ms: int) -> ClusterRequest:
        partition = FetchPartition(
            partition=self._partition,
            current_leader_epoch=self._leader_epoch(),
            fetch_offset=position,
            partition_max_bytes=_FETCH_BYTES,
        )
        topic = FetchTopic(topic=self._topic, topic_id=self.topic_id or ZERO_UUID, partitions=[partition])
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=_FETCH_BYTES, isolation_level=isolation_level, topics=[topic]
        )
        return ClusterRequest(node_id, _FETCH_BY_NAME if self.topic_id is None else FETCH, request)

    def _leader_epoch(self) -> int:
        epoch = self._client.known().leader_epoch(self._topic, self._partition)
        return -1 if epoch is None else epoch

    def _offset(self, answer: Answer) -> int | None:
        if not self._is_there(answer, LIST_OFFSETS.key):
            return None
        assert isinstance(answer, ListOffsetsResponse)
        topic = only_one(answer.topics, LIST_OFFSETS.key, "topic")
        said = only_one(topic.partitions, LIST_OFFSETS.key, "partition")
        return said.offset if self._is_fine(said.error_code, LIST_OFFSETS.key) else None

    def _fetched(self, answer: Answer) -> PartitionData | None:
        if not self._is_there(answer, FETCH.key):
            return None
        assert isinstance(answer, FetchResponse)
        if not self._is_fine(answer.error_code, FETCH.key):
            return None
        return only_one(only_one(answer.responses, FETCH.key, "topic").partitions, FETCH.key, "partition")

    def _is_there(self, answer: Answer, api: ApiKey) -> bool:
        if isinstance(answer, DisconnectedError):
            self._waiting.note(f"{api.kafka_name} of {self._where}", answer.message)
            self._client.stale()
            return False
        if isinstance(answer, Exception):
            raise answer
        return True

    def _is_fine(self, code: int, api: ApiKey) -> bool:
        if not code:
            return True
        facts = error_facts(code)
        if not facts.retriable:
            text = f"{api.kafka_name} of {self._where}: {facts.name}"
            raise self._client.rights.error(text, api, code, self._topic, grants=self._grants, topic=self._topic)
        self._waiting.note(f"{api.kafka_name} of {self._where}", facts.name)
        if facts.refreshes_metadata or code in _OTHER_LEADER:
            self._client.stale()
        return False


def data_of(said: PartitionData) -> Buffer:
    found = said.records or b""
    return found if isinstance(found, (bytes, bytearray, memoryview)) else b"".join(found)
