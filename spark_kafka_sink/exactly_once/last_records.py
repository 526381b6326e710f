"""The last record of every query and job in a commit log, read without a claim to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


def last_records_of(client: ClusterClient, topic: str, deadline: float) -> dict[str, LoggedRecord]:
    """By query or job; none where there is no such topic. A driver that is alive may write another one at any time.

    deadline: on time.monotonic's clock. Raises BrokerError where the topic may not be read, DeadlineError, and CommitRecordError
    for what no version up to this one has written.
    """
    count, code = client.topic(topic, deadline)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return {}
    if code and not count:
        name = error_facts(code).name
        raise BrokerError(f"commit log topic {topic}: {name}", topic=topic, error_code=code, error=name)
    found: dict[str, LoggedRecord] = {}
    for partition in range(count):
        found |= _of_partition(client, topic, partition, deadline)
    return found


def _of_partition(client: ClusterClient, topic: str, partition: int, deadline: float) -> dict[str, LoggedRecord]:
    chunks: dict[str, dict[int, Record]] = {}

    def take(record: Record) -> None:
        query_id, chunk = decode_key(record.key, topic)
        of_query = chunks.setdefault(query_id, {})
        if record.value is None:
            of_query.pop(chunk, None)
        else:
            of_query[chunk] = record

    reader = LogReader(client, topic, partition, take, chunks.clear)
    reader.read_to_end(deadline)
    try:
        return _decoded(chunks, topic, partition)
    except CommitRecordError:
        # A driver may just be writing chunks that were behind the end, of which the first were read.
        reader.read_to_end(deadline)
        return _decoded(chunks, topic, partition)


def _decoded(chunks: Mapping[str, Mapping[int, Record]], topic: str, partition: int) -> dict[str, LoggedRecord]:
    found = {}
    for query_id, some in chunks.items():
        if not some:
            continue  # it was forgotten
        try:
            record = decode({number: chunk.value for number, chunk in some.items() if chunk.value is not None})
        except CommitRecordError as error:
            text = f"topic {topic}, partition {partition}, query {query_id}: {error.message}"
            raise CommitRecordError(text, topic=topic, partition=partition, query_id=query_id) from error
        found[query_id] = LoggedRecord(record, partition, some[0].timestamp)
    return found
