"""A cluster, its commit log, and the steps of one query or job carried out there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from spark_kafka_sink.cli.transactions.client_config import client_config
from spark_kafka_sink.cli.transactions.settings import ConnectionOptions
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import KafkaSinkError, OptionError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, partition_of
from spark_kafka_sink.exactly_once.commit_log_settings import CommitLogSettings
from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.execution import Execution, Progress, until_it_keeps_its_claim
from spark_kafka_sink.exactly_once.foreign_prefix import foreign_prefix
from spark_kafka_sink.exactly_once.last_records import LastRecords, LoggedRecord, last_records_of
from spark_kafka_sink.exactly_once.old_jobs import forget
from spark_kafka_sink.exactly_once.rules import View
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.protocol.error_codes import ErrorCode

Result = TypeVar("Result")


class Connection:
    """Deadlines are on time.monotonic's clock."""

    def __init__(self, options: ConnectionOptions, client: ClusterClient) -> None:
        self.prefix = options.prefix
        self.transactions = TransactionClient(client)
        self._options = options
        self._client = client
        self._partitions: dict[str, int] = {}  # by query, of its records

    def deadline(self) -> float:
        return time.monotonic() + self._options.timeout_s

    def ids(self, query_id: str) -> TransactionalIds:
        return TransactionalIds(self.prefix, query_id)

    def record(self, query_id: str) -> LoggedRecord | None:
        """Its last one. OptionError where its transactional ids do not begin with this prefix; CommitRecordError where it cannot
        be read."""
        found = self.records(self.deadline()).of(query_id)
        if found is not None and (other := foreign_prefix(self.prefix, found.record)) is not None:
            raise OptionError(f"{query_id} has another transactional.id.prefix: --prefix {other}", query_id=query_id)
        return found

    def records(self, deadline: float) -> LastRecords:
        """Of every query and job. Claims nothing. OptionError where there is no log: a wrong name must not look like one without
        records."""
        if not self.has_log(deadline):
            raise OptionError(self.no_log, topic=self._options.commit_log_topic)
        found = last_records_of(self._client, self._options.commit_log_topic, deadline)
        self._partitions = {query_id: each.partition for query_id, each in found.records.items()}
        return found

    def has_log(self, deadline: float) -> bool:
        return self._client.topic(self._options.commit_log_topic, deadline)[1] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def no_log(self) -> str:
        """What to say where there is none."""
        return f"there is no commit log, topic {self._options.commit_log_topic} is not there: see --commit-log-topic"

    # What claims the log: a driver that is alive reads it again

    def carry_out(
        self,
        query_id: str,
        view: View,
        decide: Callable[[View], object],
        finish: Callable[[Execution, object], Result],
    ) -> Result:
        """The steps that `decide` says, from `view`, in which nothing is known, and what `finish` makes of where they end. All of
        it again when the claim is lost."""
        deadline = self.deadline()

        log = self._log(query_id, deadline)

        def attempt() -> Result:
            execution = Execution(log, self.transactions, self.ids(query_id), view, deadline, Progress())
            return finish(execution, execution.run(decide))

        return until_it_keeps_its_claim(attempt, deadline)

    def forget(self, record: CommitRecord) -> bool:
        """Remove what the log has of a job, if this is its last record still."""
        deadline = self.deadline()
        log = self._log(record.query_id, deadline)

        return until_it_keeps_its_claim(lambda: forget(log, self.prefix, record, deadline), deadline)

    def _log(self, query_id: str, deadline: float) -> CommitLog:
        """Of the topic as it is. One that is not there is not made, nor is anything written beside a query's records: with
        another number of partitions than the sink's it would be of no use."""
        topic = self._options.commit_log_topic
        count = self._options.commit_log_partitions or self._client.topic(topic, deadline)[0]
        if not count:
            raise OptionError(self.no_log, topic=topic)
        if self._partitions.get(query_id, partition_of(query_id, count)) != partition_of(query_id, count):
            raise OptionError(
                f"the records of {query_id} are not where they would be with {count} partitions of {topic}: set"
                " --commit-log-partitions to the sink's commit.log.partitions",
                topic=topic,
            )
        return CommitLog(self._client, CommitLogSettings(topic, count))


@contextmanager
def connected(options: ConnectionOptions) -> Iterator[Connection]:
    """A command's errors are one line each, without a traceback."""
    config = client_config(options)
    try:
        with ClusterClient(config) as client:
            yield Connection(options, client)
    except KafkaSinkError as error:
        raise click.ClickException(str(error)) from None
