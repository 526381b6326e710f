"""Commits many micro-batches without Spark, to measure commits of a long-running query and what they leave behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from benchmarks.cells import Cell, Plan
from benchmarks.environment import Topics
from benchmarks.results import COLD_LOG_READ, COMMIT, LOG_READ, Run, Runs
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import ClusterRequest
from spark_kafka_sink.exactly_once.commit_log import Claim, CommitLog
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, Slots, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse
from spark_kafka_sink.records.columns import RecordColumns

TRANSACTIONS = 2  # of each micro-batch
MEASURED = 1000  # the last ones
WORKERS = 10  # one after the other; each has its own ids, and the cluster keeps the ids of dead workers for 7 days
COLD_READS = 5
_LOG = "bench-commits"
_LOG_SETTINGS = CommitLogSettings(topic=_LOG, partitions=1)
_TIMEOUT_S = 60.0
_SIZE_EVERY = 50


class _TimedLog(CommitLog):
    """Records the duration in seconds of each claim, which reads the log."""

    def __init__(self, client: ClusterClient, settings: CommitLogSettings) -> None:
        super().__init__(client, settings)
        self.taken: list[float] = []

    def claim(self, ids: TransactionalIds, deadline: float) -> Claim:
        begun = time.perf_counter()
        claim = super().claim(ids, deadline)
        self.taken.append(time.perf_counter() - begun)
        return claim


@dataclass(slots=True)
class _Query:
    """The work of a worker and a driver for each micro-batch, in one process.

    workers: the number of workers so far; `slots` belongs to the last one.
    """

    config: ProducerConfig
    producer: Producer
    committer: Committer
    log: _TimedLog
    ids: TransactionalIds
    topic: str
    columns: RecordColumns
    slots: Slots = field(default_factory=Slots)
    workers: int = 1

    def run(self, number: int) -> float:
        """Writes and commits a micro-batch. Returns the seconds of its commit."""
        own = tuple(self._prepared(number, partition) for partition in range(TRANSACTIONS))
        begun = time.perf_counter()
        self.committer.commit(MicroBatch(self.ids.query_id, number), own)
        return time.perf_counter() - begun

    def _prepared(self, number: int, partition: int) -> PreparedTransaction:
        with self.producer.transaction(self.slots.take(self.ids, number)) as scope:
            scope.append(self.topic, self.columns)
            handle = scope.prepare()
        assert handle is not None
        return PreparedTransaction(handle, partition, 0)

    def replace_worker(self) -> None:
        """Starts a new worker, as after the loss of an executor. The old worker's ids are never used again."""
        self.slots, self.workers = Slots(), self.workers + 1

    def cold_read(self) -> float:
        """Returns the seconds that a new driver's claim takes. The brokers still have the log in memory."""
        begun = time.perf_counter()
        with ClusterClient(self.config) as client:
            last = CommitLog(client, _LOG_SETTINGS).claim(self.ids, time.monotonic() + _TIMEOUT_S).last
        assert last is not None, "the claim read another log"
        return time.perf_counter() - begun


def commits(cell: Cell, plan: Plan, topics: Topics) -> Runs:
    """Measures the last micro-batches: each commit, its claim, which reads the log, and the claims of new drivers."""
    with topics.fresh(cell.partitions, 2**28) as topic, _query(topics, topic, cell.codec, cell.value_bytes) as query:
        taken, log_bytes = _run_all(query, cell, plan.rows(cell), topics.folder)
        warm = query.log.taken[-MEASURED:]
        cold = [query.cold_read() for _ in range(COLD_READS)]
        ids = ids_left(topics.kafka.bootstrap_servers, topic, query.ids.query_id)
    left = Run(1, 0.0, 0.0, ids=ids, most_ids=query.workers * TRANSACTIONS, log_bytes=log_bytes)
    measured = {COMMIT: taken[-MEASURED:], LOG_READ: warm, COLD_LOG_READ: cold}
    return {name: [replace(left, seconds=seconds) for seconds in them] for name, them in measured.items()}


def _run_all(query: _Query, cell: Cell, batches: int, folder: Path) -> tuple[list[float], int]:
    """Returns the seconds of each commit, and the largest size of the commit log."""
    taken: list[float] = []
    log_bytes = 0
    for number in range(batches):
        taken.append(query.run(number))
        if number % _SIZE_EVERY == 0 or number + 1 == batches:
            log_bytes = max(log_bytes, _log_bytes(folder))
        if (number + 1) % max(1, batches // WORKERS) == 0:
            _say(cell, number + 1, batches, taken, query.log.taken, log_bytes)
            if number + 1 < batches:
                query.replace_worker()
    return taken, log_bytes


def _say(cell: Cell, number: int, batches: int, taken: Sequence[float], claims: Sequence[float], log_bytes: int) -> None:
    of_commit, of_claim = (1000 * sum(some[-100:]) / len(some[-100:]) for some in (taken, claims))
    line = f"{cell.name:15} {number:6,}/{batches:,} commit {of_commit:6.1f} ms, claim and read {of_claim:5.1f} ms"
    print(f"{line}, log {log_bytes / 2**20:4.1f} MB", file=sys.stderr, flush=True)


@contextmanager
def _query(topics: Topics, topic: str, codec: str, value_bytes: int) -> Iterator[_Query]:
    settings = {"bootstrap.servers": topics.kafka.bootstrap_servers, "compression.type": codec}
    config = producer_config({**settings, "transaction.timeout.ms": 15 * 60 * 1000})
    columns = RecordColumns(10, value=pa.array([bytes(value_bytes)] * 10), key=pa.array([b"%d" % number for number in range(10)]))
    with Producer(config, transactional=True) as producer, ClusterClient(config) as client:
        log = _TimedLog(client, _LOG_SETTINGS)
        committer = Committer(log, TransactionClient(client), topic, _TIMEOUT_S)
        yield _Query(config, producer, committer, log, TransactionalIds(topic, "query"), topic, columns)


def _log_bytes(folder: Path) -> int:
    """Returns the size of the commit log's records. Segments may be deleted in the meantime."""
    return sum(_size(file) for file in folder.glob(f"{_LOG}-0/*.log"))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def ids_left(bootstrap_servers: str, prefix: str, query_id: str) -> int:
    """Returns the number of transactional ids of a query's tasks that the cluster knows, in any state."""
    ids = TransactionalIds(prefix, query_id)
    deadline = time.monotonic() + _TIMEOUT_S
    with ClusterClient(producer_config({"bootstrap.servers": bootstrap_servers})) as client:
        asked = [ClusterRequest(node_id, LIST_TRANSACTIONS, ListTransactionsRequest()) for node_id in client.brokers(deadline)]
        answers = client.ask_many(asked, deadline)
    found = (each for answer in answers if isinstance(answer, ListTransactionsResponse) for each in answer.transaction_states)
    return sum(ids.owns(each.transactional_id) for each in found)
