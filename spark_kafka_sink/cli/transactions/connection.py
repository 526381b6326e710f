"""The connection to a cluster and its commit log, which carries out the steps for one query or job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from spark_kafka_sink.cli.client_settings import cluster_client
from spark_kafka_sink.cli.shared_options import TransactionsOptions
from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, LastRecords, LoggedRecord, last_records_of, partition_of
from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.commit_rules import View
from spark_kafka_sink.exactly_once.execution import CommitCall, Execution, retry_on_claim_lost
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds, foreign_prefix
from spark_kafka_sink.exactly_once.partition_reader import look_for_markers
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode

Result = TypeVar("Result")

_NEEDED: Final = ((ApiKey.END_TXN, 0), (ApiKey.FIND_COORDINATOR, 4), (ApiKey.DESCRIBE_TRANSACTIONS, 0))
"""The version that every command requires of an API. Without ListTransactions, only `abort` fails."""


class Connection:
    """A cluster and its commit log. Deadlines are values of time.monotonic()."""

    def __init__(self, options: TransactionsOptions, client: ClusterClient) -> None:
        self.prefix = options.prefix
        self.transactions = TransactionClient(client)
        self._options = options
        self._client = client
        self._partitions: dict[str, int] = {}  # the partition of each query's records

    def deadline(self) -> float:
        return time.monotonic() + self._options.timeout_s

    def ids(self, query_id: str) -> TransactionalIds:
        return TransactionalIds(self.prefix, query_id)

    def record(self, query_id: str) -> LoggedRecord | None:
        """Returns a query's last record.

        Raises:
            OptionError: its transactional ids have another prefix.
            CommitRecordError: it cannot be read.
        """
        found = self.records(self.deadline()).of(query_id)
        if found is not None and (other := foreign_prefix(self.prefix, found.record)) is not None:
            raise OptionError(f"{query_id} has another transactional.id.prefix: set --prefix {other}", query_id=query_id)
        return found

    def records(self, deadline: float) -> LastRecords:
        """Reads the last record of every query and job, without claiming the log.

        Raises:
            OptionError: there is no log. A wrong name must not look like an empty log.
        """
        if not self.has_log(deadline):
            raise OptionError(self.no_log, topic=self._options.commit_log_topic)
        found = last_records_of(self._client, self._options.commit_log_topic, deadline)
        self._partitions = {query_id: each.partition for query_id, each in found.records.items()}
        return found

    def has_log(self, deadline: float) -> bool:
        return self._client.topic(self._options.commit_log_topic, deadline)[1] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def no_log(self) -> str:
        """The error message for a missing log."""
        return f"there is no commit log: topic {self._options.commit_log_topic} does not exist; check --commit-log-topic"

    def look_for_markers(
        self, handles: Iterable[TransactionHandle], prepared_ms: int
    ) -> tuple[dict[TransactionHandle, Outcome], list[str]]:
        """Looks into the topics of transactions."""
        return look_for_markers(self._client, handles, prepared_ms, self.deadline())

    # Operations that claim the log. A running driver then reads it again.

    def carry_out(
        self, query_id: str, view: View, decide: Callable[[View], object], finish: Callable[[Execution, object], Result]
    ) -> Result:
        """Carries out the steps that `decide` returns, and returns the result of `finish`. It starts over if the claim is lost.

        view: of the batch before anything is known. finish: called with the execution and its end.
        """
        deadline = self.deadline()
        log = self._log(query_id, deadline)

        def attempt() -> Result:
            execution = Execution(log, self.transactions, self.ids(query_id), view, CommitCall(deadline))
            return finish(execution, execution.run(decide))

        return retry_on_claim_lost(attempt, deadline)

    def forget(self, record: CommitRecord) -> bool:
        """Removes a job from the log if this is still its last record. Returns whether it was."""
        deadline = self.deadline()
        log = self._log(record.query_id, deadline)
        return retry_on_claim_lost(lambda: log.forget_job(self.ids(record.query_id), record, deadline), deadline)

    def _log(self, query_id: str, deadline: float) -> CommitLog:
        """Returns the topic's log.

        It does not create a missing topic, and does not write to a partition other than that of the query's records: with a
        partition count other than the sink's, neither would be of use.
        """
        topic = self._options.commit_log_topic
        count = self._options.commit_log_partitions or self._client.topic(topic, deadline)[0]
        if not count:
            raise OptionError(self.no_log, topic=topic)
        if self._partitions.get(query_id, partition_of(query_id, count)) != partition_of(query_id, count):
            raise OptionError(
                f"with {counted(count, 'partition')} of {topic}, the records of {query_id} would be in another partition: set"
                " --commit-log-partitions to the sink's commit.log.partitions",
                topic=topic,
            )
        return CommitLog(self._client, CommitLogSettings(topic, count))


@contextmanager
def connected(options: TransactionsOptions) -> Iterator[Connection]:
    """Connects a command. Each error becomes one line without a traceback.

    The first is that of brokers that no command works with.
    """
    with cluster_client(options.bootstrap_servers, options.command_config, options.timeout_s) as client:
        for broker in client.versions(time.monotonic() + options.timeout_s):
            _check(broker)
        yield Connection(options, client)


def _check(broker: NodeApiVersions) -> None:
    """Raises UnsupportedVersionError for a broker that lacks an API which every command needs."""
    lacking = [key.kafka_name for key, version in _NEEDED if broker.newest(key) < version]
    if lacking:
        raise UnsupportedVersionError(
            f"`spark-kafka-sink transactions` requires Kafka 3.0 or newer, but {broker.label} has the APIs of Kafka"
            f" {broker.release}: it does not serve {' and '.join(lacking)} as needed. The sink refuses exactly-once on such"
            " brokers, so it has left no transactions open there. Brokers abort those of other producers after their"
            " transaction.timeout.ms",
            broker=broker.label,
        )
