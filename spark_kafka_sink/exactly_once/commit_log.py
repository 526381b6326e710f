"""The commit log: the decision about each query's last batch, stored in a compacted topic and written in transactions."""

from __future__ import annotations

import logging
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import DeadlineError, OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.commit_log_topic import CommitLogDeletedError, check_may_write, ensure_topic
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
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError, LogWriter
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds, foreign_prefix, is_job
from spark_kafka_sink.exactly_once.partition_reader import LogReader
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import NewRecord
from spark_kafka_sink.security.acls import COMMIT_LOG

logger = logging.getLogger(__name__)


def partition_of(query_id: str, partitions: int) -> int:
    """Returns the partition of a query's records. The result must never change, or the records would not be found."""
    return zlib.crc32(query_id.encode()) % partitions


class CommitLog:
    """Claims and reads the records of queries. Keep one per process: it caches what it has read and reads only new records.

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
        self._topic_id: uuid.UUID | None = None  # of the topic that was checked; None from brokers whose topics have no ids

    @property
    def topic(self) -> str:
        return self._settings.topic

    def ensure(self, deadline: float) -> None:
        """Creates the topic unless it exists, and checks that it is suitable. Later calls do so only if it was made again.

        One that is unknown now is not made again: in the middle of a commit, an empty log would say that nothing is prepared.
        """
        if not self._is_ensured or self._client.known().topic_id(self._settings.topic) not in (None, self._topic_id):
            ensure_topic(self._client, self._settings, deadline)
            self._topic_id = self._client.known().topic_id(self._settings.topic)
            self._is_ensured = True

    def is_other(self, topic_id: uuid.UUID | None) -> bool:
        """Returns whether the topic is known to be another one than that with this id; False if either id is unknown."""
        known = self._client.known().topic_id(self._settings.topic)
        return topic_id is not None and known is not None and known != topic_id

    def check(self, ids: TransactionalIds, deadline: float) -> None:
        """Checks that a query's records can be written and read. This claims them, as a commit does.

        Raises CommitRecordError if this process cannot read the query's last record. A dead driver's transaction may hold the
        reader back. For a job that is an error; a stream goes on, because its commits wait longer.
        """
        self._check_use(ids, deadline)
        try:
            self._read(self.partition_of(ids.query_id), deadline).last(ids.query_id)
        except DeadlineError as error:
            if is_job(ids.query_id):
                raise
            _warn_of_wait(error)

    def check_for_any(self, ids: TransactionalIds, deadline: float) -> None:
        """Checks what can be checked before the query's id is known. ids: of a query that does not exist.

        Raises CommitRecordError if the topic has only records that are no commit log's. Others are only logged, because they may
        concern other queries.
        """
        self._check_use(ids, deadline)
        try:
            logged = self.last_records(deadline)
        except DeadlineError as error:
            _warn_of_wait(error)
            return
        for unreadable in logged.unreadable:
            if not logged.records:
                raise unreadable
            logger.warning("queries whose records are here cannot be committed: %s", unreadable.message)

    def _check_use(self, ids: TransactionalIds, deadline: float) -> None:
        self.ensure(deadline)
        check_may_write(self._client, self._settings, deadline)
        self._initialized(ids, deadline)

    def claim(self, ids: TransactionalIds, deadline: float) -> Claim:
        """Fences the previous writer of this query's records, and reads the last record.

        The order makes this safe: after the response to InitProducerId no other writer can commit a record, so everything is
        committed up to the high watermark of that moment.
        """
        self.ensure(deadline)
        producer_id, epoch, version = self._initialized(ids, deadline)
        number = self.partition_of(ids.query_id)
        partition = self._read(number, deadline)
        writer = LogWriter(self._client, ids.commit_log, producer_id, epoch, version, (self._settings.topic, number))
        return Claim(ids.query_id, partition, writer, self._chunk_bytes)

    def _initialized(self, ids: TransactionalIds, deadline: float) -> tuple[int, int, int]:
        """Returns producer id, epoch and transaction version of the next writer of this query's records."""
        timeout_ms = self._settings.transaction_timeout_ms
        try:
            version = self._transactions.transaction_version(deadline)
            return *self._transactions.init_producer_id(ids.commit_log, timeout_ms, deadline), version
        except OptionError as error:
            text = f"the brokers' transaction.max.timeout.ms is below {timeout_ms:,} ms, which the commit log needs: raise it"
            raise OptionError(text, **error.facts) from error
        except UnsupportedVersionError as error:
            text = f"exactly-once requires Kafka 3.8 or newer: {error.message}"
            raise UnsupportedVersionError(text, **error.facts) from error

    def forget_job(self, ids: TransactionalIds, record: CommitRecord, deadline: float) -> bool:
        """Removes a record if it is still the last one of its job; returns whether it was.

        Raises ClaimLostError if another process claims the log.
        """
        claim = self.claim(ids, deadline)
        if claim.last is None or claim.last.record_id != record.record_id:
            return False
        claim.forget(deadline)
        return True

    def last_records(self, deadline: float) -> LastRecords:
        """Returns the last record of every query in all partitions. Nothing is claimed, so any may already be outdated."""
        return last_records_of(self._client, self._settings.topic, deadline)

    def partition_of(self, query_id: str) -> int:
        """Returns the partition that holds a query's records."""
        return partition_of(query_id, self._settings.partitions)

    def _read(self, number: int, deadline: float) -> _Partition:
        if number not in self._partitions:
            self._partitions[number] = _Partition(self._client, self._settings.topic, number, is_strict=True)
        partition = self._partitions[number]
        try:
            partition.reader.read_to_end(deadline)
        except CommitLogDeletedError:
            self._is_ensured = False  # the next claim creates it
            raise
        return partition


def _warn_of_wait(error: DeadlineError) -> None:
    logger.warning("the commit log could not be read before the first batch; its commit tries again: %s", error.message)


class Claim:
    """The right to write a query's records until another process claims them.

    Attributes:
        last: The last record; None if there is none.
        topic_id: The id of the topic that was read, which is another one if it was deleted and made again; None from brokers
            whose topics have no ids.
        is_end_asked: Whether the last write came so far that its records may be in the log.
    """

    def __init__(self, query_id: str, partition: _Partition, writer: LogWriter, chunk_bytes: int) -> None:
        self.last = partition.last(query_id)
        self.topic_id = partition.reader.topic_id
        self._query_id = query_id
        self._partition: _Partition | None = partition  # until a record was written
        self._chunks = frozenset(partition.chunks.get(query_id, ()))
        self._writer = writer
        self._chunk_bytes = chunk_bytes
        self.is_end_asked = False
        self._is_lost = False

    def write(self, record: CommitRecord, deadline: float) -> None:
        """Writes a record. Returns once it is committed and is `last`.

        Raises ClaimLostError if another process has claimed the query, or if it is unknown whether the record was written: claim
        and read again. After any other error (DeadlineError, BrokerError) nothing was written, and this claim is over as well.
        """
        chunks = encode(record, self._chunk_bytes)
        self._put([[(number, chunk)] for number, chunk in enumerate(chunks)], deadline)
        self.last = record
        self._chunks = frozenset(range(len(chunks)))

    def forget(self, deadline: float) -> None:
        """Writes tombstones, as `write` does, so that compaction removes the records of a finished job."""
        if self._chunks:
            self._put([[]], deadline)
        self.last = None
        self._chunks = frozenset()

    def _put(self, batches: list[list[tuple[int, bytes | None]]], deadline: float) -> None:
        """Writes the chunks, and tombstones for obsolete ones, in one transaction."""
        if self._is_lost:
            raise ClaimLostError(f"the claim on query {self._query_id} in the commit log ended with an earlier error")
        new = {number for batch in batches for number, _ in batch}
        batches[-1].extend((number, None) for number in sorted(self._chunks - new))
        self._is_lost, self.is_end_asked = True, False
        now_ms = time.time_ns() // 1_000_000
        for batch in batches:
            records = [NewRecord(encode_key(self._query_id, number), value, now_ms) for number, value in batch]
            offset = self._writer.append(records, deadline)
            if self._partition is not None:
                self._check_nothing_between(self._partition, offset, deadline)
                self._partition = None
        self.is_end_asked = True
        self._writer.commit(deadline)
        self._is_lost = False

    def _check_nothing_between(self, partition: _Partition, offset: int, deadline: float) -> None:
        """Raises ClaimLostError if records were missed before `offset`.

        A broker that was replaced as the leader without knowing it reports an old end of the log. It cannot accept a record; the
        new leader does, after the records that were not read. (A leader that lost the log's end accepts it before what was read.)
        """
        if offset < 0 or partition.has_between(self._query_id, offset, deadline):
            raise ClaimLostError(f"query {self._query_id} has records in the commit log that were written after it was read")


class _Partition:
    """The records of one partition's queries, as far as it was read: the last record of every chunk."""

    def __init__(self, client: ClusterClient, topic: str, number: int, *, is_strict: bool) -> None:
        """is_strict: whether to raise CommitRecordError for a foreign key, whose record is then read again next time."""
        self.foreign: CommitRecordError | None = None  # the first: a topic that is no commit log has one for each key
        self.chunks: dict[str, dict[int, Record]] = {}  # by query and number; never empty
        self.reader = LogReader(client, topic, number, self._take, self._forget)
        self._topic = topic
        self._is_strict = is_strict
        self._decoded: dict[str, CommitRecord] = {}

    def last(self, query_id: str) -> CommitRecord | None:
        """Returns a query's last record, or None. Raises CommitRecordError if it cannot be decoded."""
        chunks = self.chunks.get(query_id)
        if chunks is None:
            return None
        if query_id not in self._decoded:
            self._decoded[query_id] = decode({number: each.value for number, each in chunks.items() if each.value is not None})
        return self._decoded[query_id]

    def has_between(self, query_id: str, end: int, deadline: float) -> bool:
        """Returns whether a query has records between the read position and `end`, or the read position is after `end`."""
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
    """A record, its partition, and its timestamp: ms since the epoch, on its writer's clock."""

    record: CommitRecord
    partition: int
    written_ms: int


@dataclass(slots=True)
class LastRecords:
    """The result of reading the log.

    Attributes:
        records: The last record of each query or job, by its id.
        unreadable: Errors of records that this version cannot read; their `facts` have the query_id if it is known.
    """

    records: dict[str, LoggedRecord] = field(default_factory=dict)
    unreadable: list[CommitRecordError] = field(default_factory=list)

    def of(self, query_id: str) -> LoggedRecord | None:
        """Returns the last record of one query.

        Raises CommitRecordError if it cannot be decoded, or if the topic has foreign records but none of this query: it may not
        be a commit log at all.
        """
        found = self.records.get(query_id)
        for error in self.unreadable:
            if found is None and error.facts.get("query_id", query_id) == query_id:
                raise error
        return found


def last_records_of(client: ClusterClient, topic: str, deadline: float) -> LastRecords:
    """Reads all partitions of a commit log; a topic that does not exist has no records.

    A running driver may write another record at any time. An unreadable record does not hide the others, because applications
    that share the topic may run other versions.

    Raises AuthorizationError if the client may not read the topic, and DeadlineError.
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
            # A driver may be writing chunks right now, of which only the first have been read.
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


# Batch jobs that ended long ago. Their ids are never used again, so their records would stay in the log forever.

COMPLETE_FOR_MS: Final = 48 * 60 * 60 * 1000
"""How long completed jobs stay in the log. Spark may ask for them (it aborts a job whose commit did not return), and so may a
person who ran `recover`. A forgotten job looks like one that never committed, and is run again. The time is limited because each
starting driver reads these records, about 150 bytes per transaction."""

ABORTED_FOR_MS: Final = 60 * 60 * 1000
"""How long aborted jobs stay in the log. Without the record the answer is the same: nothing of the job is visible."""

_KEPT_FOR_MS: Final[Mapping[State, int]] = {
    State.COMPLETE: COMPLETE_FOR_MS,
    State.ABORTED: ABORTED_FOR_MS,
    State.CLOSED: ABORTED_FOR_MS,
}


def old_jobs(logged: Iterable[LoggedRecord], prefix: str, now_ms: int) -> list[CommitRecord]:
    """Returns the records of jobs under this prefix of transactional ids that may be removed.

    now_ms: ms since the epoch, by a clock that differs from those of the jobs' drivers by a few minutes at most.
    """
    jobs = (each for each in logged if is_job(each.record.query_id) and each.record.state in _KEPT_FOR_MS)
    old = (each.record for each in jobs if each.written_ms < now_ms - _KEPT_FOR_MS[each.record.state])
    return [each for each in old if foreign_prefix(prefix, each) is None]
