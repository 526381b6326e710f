"""The last record of every query and job in a commit log, read without a claim to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.commit_record_codec import CommitRecordError, decode, decode_key
from spark_kafka_sink.exactly_once.log_reader import LogReader
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.records.record_reader import Record


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """partition: of the topic, where it is. written_ms: when, since the epoch, on its writer's clock."""

    record: CommitRecord
    partition: int
    written_ms: int


@dataclass(slots=True)
class LastRecords:
    """records: by query or job. unreadable: what of the log this version cannot read; its `facts` have the query_id, if it is
    known."""

    records: dict[str, LoggedRecord] = field(default_factory=dict)
    unreadable: list[CommitRecordError] = field(default_factory=list)

    def of(self, query_id: str) -> LoggedRecord | None:
        """Its last one. CommitRecordError where that cannot be read, or where the topic has records of somebody else's and none
        of this query: it may be no commit log at all."""
        found = self.records.get(query_id)
        for error in self.unreadable:
            if found is None and error.facts.get("query_id", query_id) == query_id:
                raise error
        return found


def last_records_of(client: ClusterClient, topic: str, deadline: float) -> LastRecords:
    """None where there is no such topic. A driver that is alive may write another one at any time.

    deadline: on time.monotonic's clock. Raises BrokerError where the topic may not be read, and DeadlineError. One record that
    cannot be read keeps nobody from the others: who shares the topic may run another version.
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
    """By query the last record of each of its chunks; what is wrong with a key that is not ours."""

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
