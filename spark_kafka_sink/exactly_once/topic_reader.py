"""Reads the newest records of a topic, for people who look at them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest
from spark_kafka_sink.client.topics import metadata_error, offsets_of, topic_metadata
from spark_kafka_sink.counts import partition_range
from spark_kafka_sink.errors import BrokerError, ProtocolError, UsageError
from spark_kafka_sink.exactly_once.partition_reader import committed_records
from spark_kafka_sink.protocol.api import MEGABYTE
from spark_kafka_sink.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from spark_kafka_sink.protocol.apis.metadata import MetadataResponseTopic
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.fields import ZERO_UUID
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.security.acls import CONSUMER

_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_PARTITION_BYTES: Final = 1024 * 1024
_FETCH_BYTES: Final = 16 * 1024 * 1024
_MOST_BYTES: Final = 256 * MEGABYTE
"""Bytes of keys, values and headers that are kept for an answer. A person looks at less."""
_WAIT_MS: Final = 500
_BACKOFF: Final = ExponentialBackoff(50, 500)
_TAKEN_RECORDS: Final = 50_000
_TAKEN_BYTES: Final = 32 * MEGABYTE
"""Taken from responses at once, which may be compressed, and whose smallest records have seven bytes and take 200. The next fetch
returns the others."""
_FETCH: Final = replace(FETCH, max_response_bytes=100 * MEGABYTE)
"""Unlike those of the commit log, the records of users may be large."""
_FETCH_BY_NAME: Final = _FETCH.limited_to(FETCH.min_version, 12)
"""For topics without ids, as in clusters that were upgraded from before Kafka 2.8."""


class TopicReader:
    """Reads the newest and the next records of all partitions of a topic, or of one."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        deadline: float,
        *,
        partition: int | None = None,
        uncommitted: bool = False,
        note: Callable[[str], None],
    ) -> None:
        """Asks where the topic begins and ends.

        Args:
            client: Asks and fetches. Not closed.
            name: The topic's.
            deadline: On time.monotonic's clock.
            partition: None for all.
            uncommitted: Whether records of open and aborted transactions are read.
            note: Called with what the reader does otherwise than one expects.

        Raises:
            KafkaSinkError: There is no such topic or partition, or it cannot be read.
        """
        self._client = client
        self._name = name
        self._partition = partition
        self._note = note
        self._isolation = _READ_UNCOMMITTED if uncommitted else _READ_COMMITTED
        self._topic = self._described(deadline)
        self._ends: Mapping[int, tuple[int, int]] = offsets_of(client, self._topic, deadline, self._isolation)
        if not self._ends:
            raise BrokerError(f"topic {name!r}: no partition has a leader that answers", topic=name)
        left_out = sorted(each.partition_index for each in self._topic.partitions if each.partition_index not in self._ends)
        if left_out:
            partitions = f"partition{'' if len(left_out) == 1 else 's'} {', '.join(map(str, left_out))}"
            self._note(f"topic {name}: the records of {partitions} are left out, because no leader answers")
        self._positions = {partition: end for partition, (_, end) in self._ends.items()}

    def _described(self, deadline: float) -> MetadataResponseTopic:
        topic = topic_metadata(self._client, self._name, deadline)
        if topic.error_code:
            raise metadata_error(self._client, self._name, topic.error_code, grants=CONSUMER)
        wanted = self._partition
        if wanted is None:
            return topic
        partitions = [each for each in topic.partitions if each.partition_index == wanted]
        if not partitions:
            text = f"topic {self._name!r} has no partition {wanted}: {partition_range(len(topic.partitions))}"
            raise BrokerError(text, topic=self._name)
        return MetadataResponseTopic(
            error_code=0, name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions
        )

    def newest(self, count: int, deadline: float) -> list[tuple[int, Record]]:
        """Returns the newest records of all partitions by timestamp, oldest first.

        Some offsets hold no record to show: markers, aborted records, and those that compaction removed. A partition that
        yields too few records is read again from further back.
        """
        newest: list[tuple[int, Record]] = []
        windows = dict.fromkeys(self._ends, count) if count else {}
        while windows:
            starts = {
                partition: max(self._ends[partition][0], self._ends[partition][1] - window)
                for partition, window in windows.items()
            }
            again: dict[int, int] = {}
            for partition, records in self._read(starts, count, deadline, newest):
                if len(records) < count and starts[partition] > self._ends[partition][0]:
                    again[partition] = windows[partition] * 8
                else:
                    newest += [(partition, record) for record in records]
                    newest.sort(key=_age)
                    del newest[:-count]
            windows = again
        return newest

    def new(self, deadline: float) -> list[tuple[int, Record]]:
        """Waits a moment for new records. Returns them by timestamp; empty if there are none."""
        records: list[tuple[int, Record]] = []
        waiter = ResponseWaiter(deadline, _BACKOFF)
        while not self._fetched(self._positions, records, waiter, _WAIT_MS):
            waiter.again()
            self._find_again(deadline)
        return sorted(records, key=_age)

    def _find_again(self, deadline: float) -> None:
        """Fetches metadata. If the topic was created again, its records are all new, and so are its partitions."""
        before, self._topic = self._topic.topic_id, self._described(deadline)
        if self._topic.topic_id != before:
            self._note(f"topic {self._name} was deleted and created again; it is read from its start")
            self._positions = {each.partition_index: 0 for each in self._topic.partitions}

    def _read(
        self, starts: Mapping[int, int], count: int, deadline: float, newest: Sequence[tuple[int, Record]]
    ) -> Iterator[tuple[int, deque[Record]]]:
        """Yields each partition with its last `count` records from its start to its end, once it is read.

        newest: what the caller keeps of the partitions before.
        """
        found = {partition: deque[Record](maxlen=count) for partition in starts}
        positions, waiter = dict(starts), ResponseWaiter(deadline, _BACKOFF)
        while left := {each: at for each, at in positions.items() if at < self._ends[each][1]}:
            records: list[tuple[int, Record]] = []
            is_fine = self._fetched(left, records, waiter, 0)
            is_ahead = any(at > positions[each] for each, at in left.items())
            positions |= left
            for partition, record in records:
                if record.offset < self._ends[partition][1]:
                    found[partition].append(record)
            for partition in [each for each, at in left.items() if at >= self._ends[each][1]]:
                yield partition, found.pop(partition)
            kept = chain((each for _, each in newest), chain.from_iterable(found.values()))
            if sum(map(_size, kept)) > _MOST_BYTES:
                most = f"{_MOST_BYTES // MEGABYTE} MB"
                raise UsageError(
                    f"topic {self._name}: the newest {count:,} records take more than {most}; ask for fewer, or for one partition"
                )
            if not is_fine:
                waiter.again()
                self._topic = self._described(deadline)
            elif not is_ahead:
                waiter.note(f"Fetch of {self._name}", "no records came")
                waiter.again()

    def _fetched(
        self, positions: dict[int, int], records: list[tuple[int, Record]], waiter: ResponseWaiter, wait_ms: int
    ) -> bool:
        """Fetches once from each leader, adds to `records`, moves `positions`. Returns False if a leader must be found again."""
        by_leader: dict[int, list[FetchPartition]] = {}
        for each in self._topic.partitions:
            if each.partition_index in positions:
                wanted = FetchPartition(
                    partition=each.partition_index,
                    fetch_offset=positions[each.partition_index],
                    partition_max_bytes=_PARTITION_BYTES,
                )
                by_leader.setdefault(each.leader_id, []).append(wanted)
        deadline = time.monotonic() + max(1.0, wait_ms / 1000 * 4)
        answers = self._client.try_many([self._request(*one, wait_ms) for one in by_leader.items()], deadline)
        is_fine, size = True, 0
        for leader, answer in zip(by_leader, answers, strict=True):
            if isinstance(answer, Exception):
                waiter.note(f"Fetch of {self._name} from broker {leader}", answer.message)
                is_fine = False
                continue
            assert isinstance(answer, FetchResponse)
            self._check(answer.error_code)
            for topic in answer.responses:
                for said in topic.partitions:
                    partition = said.partition_index
                    if partition not in positions:
                        raise ProtocolError(f"a response to Fetch has partition {partition}, which was not requested")
                    if said.error_code:
                        is_fine = self._is_passing(partition, said.error_code, positions, waiter) and is_fine
                        continue
                    for record, after in committed_records(said, positions[partition], _MOST_BYTES):
                        if record is not None:
                            records.append((partition, record))
                            size += _size(record)
                        positions[partition] = after
                        if len(records) >= _TAKEN_RECORDS or size >= _TAKEN_BYTES:
                            return is_fine
        return is_fine

    def _request(self, leader: int, partitions: list[FetchPartition], wait_ms: int) -> ClusterRequest:
        topic_id = self._topic.topic_id
        topic = FetchTopic(topic=self._name, topic_id=topic_id, partitions=partitions)
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=_FETCH_BYTES, isolation_level=self._isolation, topics=[topic]
        )
        return ClusterRequest(leader, _FETCH_BY_NAME if topic_id == ZERO_UUID else _FETCH, request)

    def _is_passing(self, partition: int, code: int, positions: dict[int, int], waiter: ResponseWaiter) -> bool:
        """Returns True if the next fetch can go on at once. Raises for an error that is not transient."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            found = offsets_of(self._client, self._topic, time.monotonic() + 1, _READ_UNCOMMITTED)
            if partition in found:
                (first, end), at = found[partition], positions[partition]
                if at < first:  # retention has deleted it meanwhile
                    positions[partition] = first
                    return True
                if at > end:
                    where = f"partition {partition} of topic {self._name}"
                    self._note(f"{where} ends at offset {end:,} now, before {at:,}; it is read from its start")
                    positions[partition] = first
                    return True
        self._check(code)
        waiter.note(f"Fetch of {self._name}-{partition}", error_facts(code).name)
        return False

    def _check(self, code: int) -> None:
        if code and not error_facts(code).retriable and code != ErrorCode.OFFSET_OUT_OF_RANGE:
            text = f"topic {self._name!r}: Fetch answered {error_facts(code).name}"
            raise self._client.rights.error(text, FETCH.key, code, self._name, topic=self._name)


def _age(one: tuple[int, Record]) -> tuple[int, int, int]:
    partition, record = one
    return record.timestamp, partition, record.offset


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
