"""The commit log: what was decided of each query's last batch, in a compacted topic, written in transactions."""

from __future__ import annotations

import time
import zlib

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.commit_log_settings import CommitLogSettings
from spark_kafka_sink.exactly_once.commit_log_topic import ensure_topic
from spark_kafka_sink.exactly_once.commit_record import CHUNK_BYTES, CommitRecord, decode, decode_key, encode, encode_key
from spark_kafka_sink.exactly_once.last_records import LastRecords, last_records_of
from spark_kafka_sink.exactly_once.log_reader import LogReader
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError, LogWriter
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batch import NewRecord


def partition_of(query_id: str, partitions: int) -> int:
    """Returns the partition of a query's records. It must never return another one, or they would not be found."""
    return zlib.crc32(query_id.encode()) % partitions


class CommitLog:
    """Claims queries' records, and reads them. Keep one per process: it remembers what it has read, and reads only what is new.

    One thread at a time may use it. Deadlines are on time.monotonic's clock. The first use raises OptionError for an unsuitable
    topic or transaction.timeout.ms, BrokerError with the ACL to grant, and UnsupportedVersionError for brokers without
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
            self._partitions[number] = _Partition(self._client, self._settings.topic, number)
        partition = self._partitions[number]
        partition.reader.read_to_end(deadline)
        return partition


class Claim:
    """The right to write a query's records, until somebody else claims them.

    Attributes:
        last: the query's last record; None for none.
    """

    def __init__(self, query_id: str, partition: _Partition, writer: LogWriter, chunk_bytes: int) -> None:
        self.last = partition.last(query_id)
        self._query_id = query_id
        self._partition: _Partition | None = partition  # until a record was written
        self._chunks = frozenset(partition.chunks(query_id))
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
        """In one transaction: these, and tombstones for chunks that are no more."""
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
    """One partition as it was read: for each of its queries the last values of its chunks."""

    def __init__(self, client: ClusterClient, topic: str, number: int) -> None:
        self._topic = topic
        self._values: dict[str, dict[int, bytes]] = {}
        self._records: dict[str, CommitRecord] = {}
        self.reader = LogReader(client, topic, number, self._take, self._forget)

    def chunks(self, query_id: str) -> list[int]:
        return list(self._values.get(query_id, ()))

    def last(self, query_id: str) -> CommitRecord | None:
        if query_id not in self._values:
            return None
        if query_id not in self._records:
            self._records[query_id] = decode(self._values[query_id])
        return self._records[query_id]

    def has_between(self, query_id: str, end: int, deadline: float) -> bool:
        """Returns whether there are records of a query between the place that was read to and `end`, or that is behind `end`."""
        if self.reader.position > end:
            return True
        return any(decode_key(record.key, self._topic)[0] == query_id for record in self.reader.between(end, deadline))

    def _take(self, record: Record) -> None:
        query_id, chunk = decode_key(record.key, self._topic)
        chunks = self._values.setdefault(query_id, {})
        if record.value is None:
            chunks.pop(chunk, None)
            if not chunks:
                del self._values[query_id]
        else:
            chunks[chunk] = record.value
        self._records.pop(query_id, None)

    def _forget(self) -> None:
        self._values.clear()
        self._records.clear()
