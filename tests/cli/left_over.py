"""What a query or job of exactly-once leaves behind when it dies at some point, made with the parts that a real one has."""

from __future__ import annotations

import itertools
import json
import os
import time
import uuid
import zlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from click.testing import CliRunner, Result

from spark_kafka_sink.cli.main import main
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State, TaskRows
from spark_kafka_sink.exactly_once.committer import CommitReport, Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

WAIT_S = 30.0
_numbers = itertools.count()


class LeftOver:
    """One query, its rows' topic and its commit log, and the commands on them."""

    def __init__(self, kafka: Kafka, topic: str, log_topic: str, query_id: str | None = None) -> None:
        self.kafka = kafka
        self.topic = topic
        self.log_topic = log_topic
        self.prefix = f"test-{os.getpid()}-{next(_numbers)}.app"
        self.query_id = query_id or str(uuid.uuid4())
        self.client = ClusterClient(producer_config({"bootstrap.servers": kafka.bootstrap_servers}))
        self.transactions = TransactionClient(self.client)
        self.partitions = 2
        self._attempts = itertools.count()
        self._producers: dict[int, Producer] = {}

    def close(self) -> None:
        """Also what is still open: no reader of the next test is to wait for it."""
        self.transactions.end(self.transactions.open_handles(self.ids, self.soon()), False, self.soon())
        for producer in self._producers.values():
            producer.close()
        self.client.close()

    @staticmethod
    def soon() -> float:
        return time.monotonic() + WAIT_S

    # A query's life

    @property
    def ids(self) -> TransactionalIds:
        return TransactionalIds(self.prefix, self.query_id)

    @property
    def log(self) -> CommitLog:
        return CommitLog(self.client, CommitLogSettings(self.log_topic, self.partitions))

    @property
    def committer(self) -> Committer:
        return Committer(self.log, self.transactions, self.prefix, WAIT_S)

    def task(self, spark_partition: int, *rows: str, timeout_ms: int = 60_000) -> PreparedTransaction:
        """Of an attempt: its rows are written, its transaction is open."""
        identity = self.ids.for_slot(os.urandom(8).hex(), next(self._attempts))
        with self._producer(timeout_ms).transaction(identity) as scope:
            scope.append(self.topic, RecordColumns(len(rows), pa.array(rows)))
            handle = scope.prepare()
        assert handle is not None
        return PreparedTransaction(handle, spark_partition, zlib.crc32(repr(rows).encode()))

    def _producer(self, timeout_ms: int) -> Producer:
        if timeout_ms not in self._producers:
            settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "transaction.timeout.ms": timeout_ms}
            self._producers[timeout_ms] = Producer(settings, transactional=True)
        return self._producers[timeout_ms]

    def prepared(self, batch: int, own: Iterable[PreparedTransaction]) -> None:
        """A driver that dies right after it has written that."""
        self.write(batch, State.PREPARED, own)

    def write(
        self, batch: int, state: State, own: Iterable[PreparedTransaction], aborted: Iterable[PreparedTransaction] = ()
    ) -> None:
        transactions = tuple(own)
        rows = sum(each.handle.records for each in transactions)
        gone = tuple(each.handle.transactional_id for each in aborted)
        topic_ids = sorted({each for one in transactions for each in one.handle.topic_ids}) if state is State.PREPARED else ()
        record = CommitRecord(
            self.query_id, batch, state, os.urandom(8).hex(), rows, transactions, aborted=gone, topic_ids=tuple(topic_ids)
        )
        self.log.claim(self.ids, self.soon()).write(record, self.soon())

    def commit(self, batch: int, *own: PreparedTransaction, tasks: tuple[TaskRows, ...] = ()) -> CommitReport:
        return self.committer.commit(MicroBatch(self.query_id, batch), own, tasks=tasks)

    def aborted_by_brokers(self, *transactions: PreparedTransaction) -> None:
        """As its time-out leaves a transaction."""
        self.transactions.end([each.handle for each in transactions], False, self.soon())

    # What is seen of it

    def visible(self) -> list[str]:
        found = read_topic(self.kafka.direct_servers, self.topic, isolation_level="read_committed")
        return sorted((each.value or b"").decode() for each in found)

    def last(self) -> CommitRecord | None:
        return self.log.claim(self.ids, self.soon()).last

    def run(self, *arguments: str, answer: str = "") -> Result:
        """A command with the options that all need."""
        name, *rest = arguments
        options = ["--bootstrap-servers", self.kafka.bootstrap_servers, "--prefix", self.prefix]
        options += ["--commit-log-topic", self.log_topic]
        return CliRunner().invoke(main, ["transactions", name, *options, *rest], input=answer)

    def listed(self) -> dict[str, Any]:
        """What `list --json` says of the query; {} for nothing."""
        listed = self.run("list", "--json")
        assert (listed.exit_code, listed.stderr) == (0, ""), listed.stderr
        lines = [json.loads(line) for line in listed.stdout.splitlines()]
        return next((line for line in lines if line["query_id"] == self.query_id), {})
