"""Reads back the records of `report.topic`, for programs that get no counts from Spark, such as clients of Spark Connect."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.topic_reader import TopicReader
from spark_kafka_sink.options.guarantee_options import GUARANTEE
from spark_kafka_sink.options.sink_options import KAFKA_PREFIX, SinkOptions, sink_options
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.reports.report_facts import printable
from spark_kafka_sink.spark.driver.history import QueryHistory, history_of
from spark_kafka_sink.spark.plan.first_contact import check_answers
from spark_kafka_sink.spark.report_record import ReportRecord

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_MOST: Final = 10_000
_TIMEOUT_S: Final = 30.0
_NAMED: Final = 10


def history_from_topic(
    topic: str,
    query: StreamingQuery | str,
    n: int,
    bootstrap_servers: str | Sequence[str] | None,
    options: Mapping[str, object] | None,
) -> QueryHistory:
    """Returns the history of a query from the reports in a topic: see `DeliveryMetrics.from_topic`."""
    # Others are about rows, and report.topic may not be the topic.
    given = {name: value for name, value in (options or {}).items() if name.lower().startswith((KAFKA_PREFIX, GUARANTEE))}
    if bootstrap_servers is not None:
        given[KAFKA_PREFIX + "bootstrap.servers"] = bootstrap_servers
    found = newest_records("from_topic", topic, n, sink_options(given))
    records = [record for _, record in reports_in(topic, found, logger.warning)]
    wanted = query if isinstance(query, str) else str(query.id)
    ids = {each.batch.query_id: each.name for each in records}
    named = [query_id for query_id, name in ids.items() if wanted in (query_id, name)]
    if not named:
        newest = list(ids.items())[-_NAMED:]
        known = [f"{printable(query_id)} ({printable(name)})" if name else printable(query_id) for query_id, name in newest]
        others = ", ".join(known) or "none"
        raise UsageError(f"topic {topic}: no query {wanted!r} has a report among the newest {n:,}; those that have one: {others}")
    query_id = named[-1]
    batches = [each.batch for each in records if each.batch.query_id == query_id]
    return history_of(query_id, batches, ids[query_id])


def newest_records(
    call: str, topic: str, n: int, options: SinkOptions, *, partition: int | None = None, uncommitted: bool = False
) -> list[tuple[int, Record]]:
    """Returns the newest records of a topic, or of one of its partitions, within 30 seconds. Raises like `TopicReader`."""
    if not 1 <= n <= _MOST:
        raise UsageError(f"{call}: n must be 1 to {_MOST:,}, and it is {n}")
    deadline = time.monotonic() + _TIMEOUT_S
    with ClusterClient(options.producer) as client:
        check_answers(client, options, "this program")
        reader = TopicReader(client, topic, deadline, partition=partition, uncommitted=uncommitted, note=logger.warning)
        return reader.newest(n, deadline)


def reports_in(
    topic: str, records: Iterable[tuple[int, Record]], note: Callable[[str], None]
) -> Iterator[tuple[Record, ReportRecord]]:
    """Yields the reports among records of a topic. note: is called once if some are none, after the last."""
    others = list[str]()
    for partition, record in records:
        try:
            yield record, ReportRecord.of(record.value)
        except UsageError as error:
            others.append(f"record {record.offset} of partition {partition}: {error.message}")
    if others:
        note(f"topic {topic}: left out {counted(len(others), 'record')} without a report, such as {others[-1]}")
