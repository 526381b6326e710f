"""Reads partitions in the calling thread: the committed records of the commit log, and the markers of transactions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import Answer, ClusterRequest, only_one
from spark_kafka_sink.client.topics import metadata_error
from spark_kafka_sink.errors import BrokerError, DeadlineError, DisconnectedError, KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log_topic import leader_of
from spark_kafka_sink.exactly_once.coordinator_rounds import BACKOFF
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, outcome_of_markers, proof_of_marker
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_numbers
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from spark_kafka_sink.protocol.apis.partition_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTimestamp,
    ListOffsetsTopic,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import ZERO_UUID
from spark_kafka_sink.records.compression import Buffer
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import ABORT, COMMIT, MAX_DECOMPRESSED, FetchedBatch, committed, decode_batches
from spark_kafka_sink.security.acls import COMMIT_LOG

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
            requests = [self._offsets_request(node_id, timestamp) for timestamp in (since_ms, ListOffsetsTimestamp.LATEST)]
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


# The commit log

_MAX_WAIT_MS: Final = 500


class LogReader(PartitionReader):
    """Reads on from where it stopped before.

    If that position is lost, because the topic was recreated or the log was truncated, it starts over. It then calls
    `on_restart` before the first record: everything read before is void.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        partition: int,
        on_record: Callable[[Record], None],
        on_restart: Callable[[], None],
    ) -> None:
        super().__init__(client, topic, partition, COMMIT_LOG)
        self._on_record = on_record
        self._on_restart = on_restart
        self._position: int | None = None  # the offset of the first unread record
        self._end: int | None = None  # the high watermark to read to
        self._is_confirmed = False  # a Fetch confirmed that it is still the same topic

    @property
    def position(self) -> int:
        """The offset of the first unread record, after `read_to_end`."""
        assert self._position is not None
        return self._position

    def read_to_end(self, deadline: float) -> None:
        """Reads the committed records up to the current high watermark, and waits for open transactions before it to end.

        Raises DeadlineError, which names the offset of such a transaction, and AuthorizationError if the client may not read.
        """
        self._waiting = ResponseWaiter(deadline, BACKOFF)
        self._end, self._is_confirmed = None, False
        while not self._is_at_end():
            node_id = leader_of(self._client, self._topic, self._partition, deadline)
            topic_id = self._client.known().topic_id(self._topic)
            if topic_id != self.topic_id:
                self.topic_id = topic_id
                self._restart()
            if not self._round(node_id, deadline):
                self._waiting.again()
            elif not self._is_at_end() and self._waiting.is_over:
                self._waiting.fail()

    def between(self, end: int, deadline: float) -> list[Record]:
        """Returns the records from `position` to the offset `end`, committed or not. `end` must be below the high watermark.

        Raises ClaimLostError if the topic was made again since it was read.
        """
        data = (each for each in self._batches(self.position, end, deadline) if not each.is_control)
        return [record for each in data for record in each.each_record() if self.position <= record.offset < end]

    # Inside

    def _is_at_end(self) -> bool:
        known = self._end is not None and self._position is not None and self._position >= self._end
        return known and self._is_confirmed

    def _restart(self) -> None:
        self._position = self._end = None
        self._is_confirmed = False
        self._on_restart()

    def _round(self, node_id: int, deadline: float) -> bool:
        """Requests unknown offsets, and fetches if they are known. False: try again after a pause, maybe with another leader."""
        unknown = [ListOffsetsTimestamp.LATEST] if self._end is None else []
        unknown += [ListOffsetsTimestamp.EARLIEST] if self._position is None else []
        questions = [self._offsets_request(node_id, timestamp) for timestamp in unknown]
        if self._position is not None:
            # At the end there is nothing to wait for; before it the broker answers as soon as the last stable offset moves.
            is_at_end = self._end is None or self._position >= self._end
            wait_ms = 0 if is_at_end else max(0, min(_MAX_WAIT_MS, round((deadline - time.monotonic()) * 500)))
            questions.append(self._fetch(node_id, self._position, READ_COMMITTED, wait_ms))
        answers = self._client.try_many(questions, deadline)
        offsets = [self._offset(answer) for answer in answers[: len(unknown)]]
        if None in offsets:
            return False
        for timestamp, offset in zip(unknown, offsets, strict=True):
            if timestamp == ListOffsetsTimestamp.LATEST:
                self._end = offset
            else:
                self._position = offset
        return len(answers) == len(unknown) or self._take_fetched(answers[-1])

    def _take_fetched(self, answer: Answer) -> bool:
        said = self._fetched(answer)
        if said is None:
            return False
        assert self._position is not None
        assert self._end is not None
        if said.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or self._position > self._end:
            self._restart()
            return False
        if not self._is_fine(said.error_code, FETCH.key):
            return False
        for record, after in committed_records(said, self._position):
            if record is not None:
                self._on_record(record)
            self._position = after
        self._is_confirmed = True
        if self._position < self._end:
            text = f"an open transaction blocks readers at offset {said.last_stable_offset} of {self._end} until it ends"
            self._waiting.note(self._where, text)
        return True


# The committed records in the response to a Fetch with read_committed. Java's CompletedFetch. Pure.


def committed_records(said: PartitionData, position: int, limit: int = MAX_DECOMPRESSED) -> Iterator[tuple[Record | None, int]]:
    """Yields each record of a response with the next offset, as `small_batches.committed` does."""
    return committed(data_of(said), said.aborted_transactions, position, limit)


# Markers of transactions whose coordinators no longer know how they ended

_BEFORE_MS: Final = 300_000
"""How long before `prepared` was written a transaction may have timed out: the most that a commit takes, and clocks differ."""
_MAX_NAMED: Final = 10


def look_for_markers(
    client: ClusterClient, handles: Iterable[TransactionHandle], prepared_ms: int, deadline: float
) -> tuple[dict[TransactionHandle, Outcome], list[str]]:
    """Returns the outcome of each transaction, and why any is unknown.

    It reads each partition from the time on at which the batch was prepared, until it has the markers.

    Args:
        client: of the cluster.
        handles: the transactions.
        prepared_ms: when their `prepared` record was written, in ms since the epoch.
        deadline: on time.monotonic's clock.
    """
    proofs: dict[TransactionHandle, list[Proof]] = {each: [] for each in handles}
    by_partition: dict[tuple[str, int], list[TransactionHandle]] = {}
    for each in proofs:
        for topic, numbers in each.partitions:
            for number in partition_numbers(numbers):
                by_partition.setdefault((topic, number), []).append(each)
    reasons, is_late = list[str](), False
    for (topic, number), some in sorted(by_partition.items()):
        found: dict[TransactionHandle, Proof] = {}
        try:
            if not is_late:
                _read(client, topic, number, some, prepared_ms - _BEFORE_MS, deadline, found)
        except DeadlineError as error:
            is_late = True
            reasons.append(f"the time was too short to look for markers: raise --timeout ({error.message})")
        except KafkaSinkError as error:
            reasons.append(error.message)
        else:
            if not is_late and (lacking := [each.transactional_id for each in some if each not in found]):
                since = datetime.fromtimestamp(prepared_ms / 1000, UTC).isoformat(timespec="seconds")
                text = f"topic {topic}, partition {number} has no marker of {lacking[0]} since {since}: it may have been deleted"
                reasons.append(text)
        for each in some:
            proofs[each].append(found.get(each, Proof.UNKNOWN))
    more = [f"and {len(reasons) - _MAX_NAMED} more"] if len(reasons) > _MAX_NAMED else []
    return {each: outcome_of_markers(some) for each, some in proofs.items()}, reasons[:_MAX_NAMED] + more


def _read(
    client: ClusterClient,
    topic: str,
    number: int,
    handles: list[TransactionHandle],
    since_ms: int,
    deadline: float,
    found: dict[TransactionHandle, Proof],
) -> None:
    """Adds what the markers in one partition prove to `found`. The first proof counts, as it does for consumers."""
    count, code = client.topic(topic, deadline)
    if number >= count:
        raise (
            metadata_error(client, topic, code) if code else BrokerError(f"topic {topic} has no partition {number}", topic=topic)
        )
    for batch in PartitionReader(client, topic, number).markers(since_ms, deadline):
        marker = next(batch.each_record(), None)  # None where compaction has removed it
        if marker is None or marker.key not in (ABORT, COMMIT):
            continue
        for each in handles:
            proof = proof_of_marker(each, batch.producer_id, batch.producer_epoch, committed=marker.key == COMMIT)
            if proof is not Proof.UNKNOWN:
                found.setdefault(each, proof)
        if len(found) == len(handles):
            return
