"""The last record of every query and job in a commit log, read without a claim to it, and which of them may be forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, CommitRecordError, State, decode, decode_key
from spark_kafka_sink.exactly_once.log_reader import LogReader
from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.exactly_once.transactional_ids import foreign_prefix
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.records.record_reader import Record


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record, the partition of the topic that it is in, and when it was written: ms since the epoch, on its writer's clock."""

    record: CommitRecord
    partition: int
    written_ms: int


@dataclass(slots=True)
class LastRecords:
    """What a read of the log has found.

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

    Args:
        client: asks the brokers.
        topic: the commit log.
        deadline: on time.monotonic's clock.

    Raises:
        BrokerError: the topic may not be read.
        DeadlineError: the cluster did not answer in time.
    """
    count, code = client.topic(topic, deadline)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return LastRecords()
    if code and not count:
        name = error_facts(code).name
        raise BrokerError(f"commit log topic {topic}: {name}", topic=topic, error_code=code, error=name)
    found = LastRecords()
    for partition in range(count):
        _Partition(client, topic, partition).read(found, deadline)
    return found


class _Partition:
    """One partition as it was read: for each of its queries the last record of each chunk, and the first key that is not ours."""

    def __init__(self, client: ClusterClient, topic: str, number: int) -> None:
        self._topic = topic
        self._number = number
        self._chunks: dict[str, dict[int, Record]] = {}
        self._foreign: CommitRecordError | None = None  # the first: a topic that is no commit log has one for each key
        self._reader = LogReader(client, topic, number, self._take, self._forget)

    def read(self, found: LastRecords, deadline: float) -> None:
        self._reader.read_to_end(deadline)
        records, unreadable = self._decoded()
        if unreadable:
            # A driver may just be writing chunks that were behind the end, of which the first were read.
            self._reader.read_to_end(deadline)
            records, unreadable = self._decoded()
        found.records |= records
        found.unreadable += [*unreadable, *([self._foreign] if self._foreign else [])]

    def _take(self, record: Record) -> None:
        try:
            query_id, chunk = decode_key(record.key, self._topic)
        except CommitRecordError as error:
            self._foreign = self._foreign or error
            return
        of_query = self._chunks.setdefault(query_id, {})
        if record.value is None:
            of_query.pop(chunk, None)
        else:
            of_query[chunk] = record

    def _forget(self) -> None:
        self._chunks.clear()
        self._foreign = None

    def _decoded(self) -> tuple[dict[str, LoggedRecord], list[CommitRecordError]]:
        records, unreadable = {}, []
        for query_id, chunks in self._chunks.items():
            try:
                if chunks:  # else it was forgotten
                    records[query_id] = self._logged(chunks)
            except CommitRecordError as error:
                where = f"topic {self._topic}, partition {self._number}, query {query_id}"
                facts = {"topic": self._topic, "partition": self._number, "query_id": query_id}
                unreadable.append(CommitRecordError(f"{where}: {error.message}", **facts))
        return records, unreadable

    def _logged(self, chunks: Mapping[int, Record]) -> LoggedRecord:
        record = decode({number: chunk.value for number, chunk in chunks.items() if chunk.value is not None})
        return LoggedRecord(record, self._number, chunks[0].timestamp)


# Batch jobs that ended long ago: each has an id that never comes back, so their records would stay in the log for ever.

COMPLETE_FOR_MS: Final = 48 * 60 * 60 * 1000
"""Until then somebody may ask: Spark, which aborts a job whose commit did not answer, or a person, for whom `recover` has ended
it meanwhile. A forgotten job is taken for one that has never committed, and run again. Not for ever: a driver that starts reads
these records, some 150 bytes a transaction."""

ABORTED_FOR_MS: Final = 60 * 60 * 1000
"""To forget these says the same: nothing of the job is visible."""

_KEPT_FOR_MS: Final[Mapping[State, int]] = {
    State.COMPLETE: COMPLETE_FOR_MS,
    State.ABORTED: ABORTED_FOR_MS,
    State.CLOSED: ABORTED_FOR_MS,
}


def old_jobs(logged: Iterable[LoggedRecord], prefix: str, now_ms: int) -> list[CommitRecord]:
    """Returns the records of jobs under this prefix of transactional ids that may be forgotten.

    Args:
        logged: records of any query or job.
        prefix: of transactional ids.
        now_ms: since the epoch, by a clock that agrees with those of the jobs' drivers to within some minutes.
    """
    records = (each.record for each in logged if _is_old(each, now_ms))
    return [each for each in records if foreign_prefix(prefix, each) is None]


def _is_old(logged: LoggedRecord, now_ms: int) -> bool:
    kept_for_ms = _KEPT_FOR_MS.get(logged.record.state)
    return kept_for_ms is not None and is_job(logged.record.query_id) and logged.written_ms < now_ms - kept_for_ms
