"""The commit log: what was decided of each query's last batch, in a compacted topic, written in transactions."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.commit_log_settings import CommitLogSettings
from spark_kafka_sink.exactly_once.commit_log_topic import ensure_topic
from spark_kafka_sink.exactly_once.commit_record import (
    CHUNK_BYTES,
    CommitRecord,
    CommitRecordError,
    State,
    decode,
    decode_key,
    encode,
    encode_key,
)
from spark_kafka_sink.exactly_once.log_reader import LogReader
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError, LogWriter
from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds, foreign_prefix
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batch import NewRecord
from spark_kafka_sink.security.acls import COMMIT_LOG


def partition_of(query_id: str, partitions: int) -> int:
    """Returns the partition of a query's records. It must never return another one, or they would not be found."""
    return zlib.crc32(query_id.encode()) % partitions


class CommitLog:
    """Claims queries' records, and reads them. Keep one per process: it remembers what it has read, and reads only what is new.

    One thread at a time may use it. Deadlines are on time.monotonic's clock. The first use raises OptionError for an unsuitable
    topic or transaction.timeout.ms, AuthorizationError with the ACL to grant, and UnsupportedVersionError for brokers without
    transactions.
    """

    def __init__(
        self, client: ClusterClient, settings: CommitLogSettings | None = None, *, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self._client = client
        self._settings = settings or CommitLogSettings()
        self._chunk_bytes = chunk_bytes
        self._transactions = TransactionClient(client)
        self._partitions: dict[int, _Partition] = {}
        self._is_ensured = False

    def ensure(self, deadline: float) -> None:
        """Creates the topic unless it exists, and checks that it can be the log: once for an object."""
        if not self._is_ensured:
            ensure_topic(self._client, self._settings, deadline)
            self._is_ensured = True

    def claim(self, ids: TransactionalIds, deadline: float) -> Claim:
        """Fences whoever wrote this query's records before, and reads its last one.

        The order is what makes this safe: once InitProducerId is answered, nobody else's record can be committed; so what is
        committed up to the high watermark of then is all there is.
        """
        self.ensure(deadline)
        try:
            version = self._transactions.transaction_version(deadline)
            timeout_ms = self._settings.transaction_timeout_ms
            producer_id, epoch = self._transactions.init_producer_id(ids.commit_log, timeout_ms, deadline)
        except OptionError as error:
            text = f"the brokers' transaction.max.timeout.ms is below {timeout_ms:,} ms, which the commit log needs: raise it"
            raise OptionError(text, **error.facts) from error
        except UnsupportedVersionError as error:
            text = f"exactly-once needs Kafka 3.8 or newer: {error.message}"
            raise UnsupportedVersionError(text, **error.facts) from error
        number = self.partition_of(ids.query_id)
        partition = self._read(number, deadline)
        writer = LogWriter(self._client, ids.commit_log, producer_id, epoch, version, (self._settings.topic, number))
        return Claim(ids.query_id, partition, writer, self._chunk_bytes)

    def forget_job(self, ids: TransactionalIds, record: CommitRecord, deadline: float) -> bool:
        """Removes a record if it is still the last one of its job; returns whether it was.

        Raises ClaimLostError where somebody else takes the log.
        """
        claim = self.claim(ids, deadline)
        if claim.last is None or claim.last.record_id != record.record_id:
            return False
        claim.forget(deadline)
        return True

    def last_records(self, deadline: float) -> LastRecords:
        """Returns the last record of every query, in any partition. Nothing is claimed: any of them may be out of date by now."""
        return last_records_of(self._client, self._settings.topic, deadline)

    def partition_of(self, query_id: str) -> int:
        """Returns the partition where a query's records are written, and looked for."""
        return partition_of(query_id, self._settings.partitions)

    def _read(self, number: int, deadline: float) -> _Partition:
        if number not in self._partitions:
            self._partitions[number] = _Partition(self._client, self._settings.topic, number, is_strict=True)
        partition = self._partitions[number]
        partition.reader.read_to_end(deadline)
        return partition


class Claim:
    """The right to write a query's records, until somebody else claims them. last: its last record; None for none."""

    def __init__(self, query_id: str, partition: _Partition, writer: LogWriter, chunk_bytes: int) -> None:
        self.last = partition.last(query_id)
        self._query_id = query_id
        self._partition: _Partition | None = partition  # until a record was written
        self._chunks = frozenset(partition.chunks.get(query_id, ()))
        self._writer = writer
        self._chunk_bytes = chunk_bytes
        self._is_lost = False

    def write(self, record: CommitRecord, deadline: float) -> None:
        """Writes a record; returns once it is committed, and is `last`.

        Raises ClaimLostError where somebody else has claimed the query, or nobody knows whether the record was written: claim
        again, and read. After any other error (DeadlineError, BrokerError) nothing was written, and this claim is over as well.
        """
        chunks = encode(record, self._chunk_bytes)
        self._put([[(number, chunk)] for number, chunk in enumerate(chunks)], deadline)
        self.last = record
        self._chunks = frozenset(range(len(chunks)))

    def forget(self, deadline: float) -> None:
        """Writes tombstones, as `write` does: compaction removes the records of a job that is over."""
        if self._chunks:
            self._put([[]], deadline)
        self.last = None
        self._chunks = frozenset()

    def _put(self, batches: list[list[tuple[int, bytes | None]]], deadline: float) -> None:
        """Writes these, and tombstones for chunks that are no more, in one transaction."""
        if self._is_lost:
            raise ClaimLostError(f"the claim on query {self._query_id} in the commit log is over since an earlier error")
        new = {number for batch in batches for number, _ in batch}
        batches[-1].extend((number, None) for number in sorted(self._chunks - new))
        self._is_lost = True
        now_ms = time.time_ns() // 1_000_000
        for batch in batches:
            records = [NewRecord(encode_key(self._query_id, number), value, now_ms) for number, value in batch]
            offset = self._writer.append(records, deadline)
            if self._partition is not None:
                self._check_nothing_between(self._partition, offset, deadline)
                self._partition = None
        self._writer.commit(deadline)
        self._is_lost = False

    def _check_nothing_between(self, partition: _Partition, offset: int, deadline: float) -> None:
        """A broker that was replaced as the leader, and has not heard of it, tells an old end of the log. It can take no record:
        the new leader does, behind what was not read. (One that lost the log's end takes it before what was read.)"""
        if offset < 0 or partition.has_between(self._query_id, offset, deadline):
            raise ClaimLostError(f"query {self._query_id} has records in the commit log that were not there when it was read")


class _Partition:
    """The records of one partition's queries, as far as it was read: for each the last record of every chunk."""

    def __init__(self, client: ClusterClient, topic: str, number: int, *, is_strict: bool) -> None:
        """is_strict: raises CommitRecordError for a key that is not ours, whose record is read again next time."""
        self.foreign: CommitRecordError | None = None  # the first: a topic that is no commit log has one for each key
        self.chunks: dict[str, dict[int, Record]] = {}  # by query and number; never empty
        self.reader = LogReader(client, topic, number, self._take, self._forget)
        self._topic = topic
        self._is_strict = is_strict
        self._decoded: dict[str, CommitRecord] = {}

    def last(self, query_id: str) -> CommitRecord | None:
        """Returns a query's last record; None for none. Raises CommitRecordError where it cannot be read."""
        chunks = self.chunks.get(query_id)
        if chunks is None:
            return None
        if query_id not in self._decoded:
            self._decoded[query_id] = decode({number: each.value for number, each in chunks.items() if each.value is not None})
        return self._decoded[query_id]

    def has_between(self, query_id: str, end: int, deadline: float) -> bool:
        """Returns whether there are records of a query between the place that was read to and `end`, or that is behind `end`."""
        if self.reader.position > end:
            return True
        return any(decode_key(record.key, self._topic)[0] == query_id for record in self.reader.between(end, deadline))

    def _take(self, record: Record) -> None:
        try:
            query_id, number = decode_key(record.key, self._topic)
        except CommitRecordError as error:
            if self._is_strict:
                raise
            self.foreign = self.foreign or error
            return
        self._decoded.pop(query_id, None)
        chunks = self.chunks.setdefault(query_id, {})
        if record.value is None:
            chunks.pop(number, None)
            if not chunks:
                del self.chunks[query_id]
        else:
            chunks[number] = record

    def _forget(self) -> None:
        self.chunks.clear()
        self._decoded.clear()
        self.foreign = None


# The log read without a claim


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record, the partition of the topic that it is in, and when it was written: ms since the epoch, on its writer's clock."""

    record: CommitRecord
    partition: int
    written_ms: int


@dataclass(slots=True)
class LastRecords:
    """The findings of a read of the log.

    Attributes:
        records: the last one of each query or job, by its id.
        unreadable: what this version cannot read; its `facts` have the query_id, if it is known.
    """

    records: dict[str, LoggedRecord] = field(default_factory=dict)
    unreadable: list[CommitRecordError] = field(default_factory=list)

    def of(self, query_id: str) -> LoggedRecord | None:
        """Returns the last record of one query.

        Raises CommitRecordError where it cannot be read, or where the topic has somebody else's records and none of this query:
        it may be no commit log at all.
        """
        found = self.records.get(query_id)
        for error in self.unreadable:
            if found is None and error.facts.get("query_id", query_id) == query_id:
                raise error
        return found


def last_records_of(client: ClusterClient, topic: str, deadline: float) -> LastRecords:
    """Reads all partitions of a commit log; a topic that does not exist has no records.

    A driver that is alive may write another record at any time. One record that cannot be read does not hide the others: those
    who share the topic may run another version.

    Raises AuthorizationError where the topic may not be read, and DeadlineError.
    """
    count, code = client.topic(topic, deadline)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return LastRecords()
    if code and not count:
        text = f"commit log topic {topic}: {error_facts(code).name}"
        raise client.rights.error(text, ApiKey.METADATA, code, topic, grants=COMMIT_LOG, topic=topic)
    found = LastRecords()
    for number in range(count):
        partition = _Partition(client, topic, number, is_strict=False)
        partition.reader.read_to_end(deadline)
        records, unreadable = _decoded(partition, topic, number)
        if unreadable:
            # A driver may just be writing chunks that were behind the end, of which the first were read.
            partition.reader.read_to_end(deadline)
            records, unreadable = _decoded(partition, topic, number)
        found.records |= records
        found.unreadable += [*unreadable, *([partition.foreign] if partition.foreign else [])]
    return found


def _decoded(partition: _Partition, topic: str, number: int) -> tuple[dict[str, LoggedRecord], list[CommitRecordError]]:
    records, unreadable = {}, []
    for query_id, chunks in partition.chunks.items():
        try:
            record = partition.last(query_id)
            assert record is not None
            records[query_id] = LoggedRecord(record, number, chunks[0].timestamp)
        except CommitRecordError as error:
            text = f"topic {topic}, partition {number}, query {query_id}: {error.message}"
            unreadable.append(CommitRecordError(text, topic=topic, partition=number, query_id=query_id))
    return records, unreadable


# Batch jobs that ended long ago: each has an id that never comes back, so their records would stay in the log for ever.

COMPLETE_FOR_MS: Final = 48 * 60 * 60 * 1000
"""Until then somebody may ask: Spark, which aborts a job whose commit did not answer, or a person, for whom `recover` has ended
it meanwhile. A forgotten job is taken for one that has never committed, and run again. Not for ever: a driver that starts reads
these records, some 150 bytes a transaction."""

ABORTED_FOR_MS: Final = 60 * 60 * 1000
"""The age at which aborted jobs are forgotten. That says the same: nothing of the job is visible."""

_KEPT_FOR_MS: Final[Mapping[State, int]] = {
    State.COMPLETE: COMPLETE_FOR_MS,
    State.ABORTED: ABORTED_FOR_MS,
    State.CLOSED: ABORTED_FOR_MS,
}


def old_jobs(logged: Iterable[LoggedRecord], prefix: str, now_ms: int) -> list[CommitRecord]:
    """Returns the records of jobs under this prefix of transactional ids that may be forgotten.

    now_ms: since the epoch, by a clock that agrees with those of the jobs' drivers to within some minutes.
    """
    records = (each.record for each in logged if _is_old(each, now_ms))
    return [each for each in records if foreign_prefix(prefix, each) is None]


def _is_old(logged: LoggedRecord, now_ms: int) -> bool:
    kept_for_ms = _KEPT_FOR_MS.get(logged.record.state)
    return kept_for_ms is not None and is_job(logged.record.query_id) and logged.written_ms < now_ms - kept_for_ms
