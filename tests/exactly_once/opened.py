"""Transactions that tests open, for others to end; records of a commit log, and a reader of it that is not ours."""

from __future__ import annotations

import itertools
import os
import time

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.log_writer import LogWriter
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.records.small_batches import NewRecord
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import until

_numbers = itertools.count()


def client_of(kafka: Kafka | str) -> ClusterClient:
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    return ClusterClient(producer_config({"bootstrap.servers": servers}))


def soon(seconds: float = 30.0) -> float:
    """A deadline."""
    return time.monotonic() + seconds


def new_id(prefix: str = "opened") -> str:
    """A transactional id that nobody else has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def record(value: str) -> NewRecord:
    return NewRecord(None, value.encode(), time.time_ns() // 1_000_000)


def writer(client: ClusterClient, topic: str, identity: str, timeout_ms: int = 60_000, partition: int = 0) -> LogWriter:
    """Initialised, with nothing written yet."""
    transactions = TransactionClient(client)
    producer_id, epoch = transactions.init_producer_id(identity, timeout_ms, soon())
    return LogWriter(client, identity, producer_id, epoch, transactions.transaction_version(soon()), (topic, partition))


def opened(
    client: ClusterClient, topic: str, value: str, identity: str | None = None, timeout_ms: int = 60_000
) -> TransactionHandle:
    """A transaction of one record, still open."""
    made = writer(client, topic, identity or new_id(), timeout_ms)
    made.append([record(value)], soon())
    return made.handle()


def query() -> TransactionalIds:
    return TransactionalIds(new_id("prefix"), new_id("query"))


def a_record(ids: TransactionalIds, batch: int, state: State = State.PREPARED, transactions: int = 2) -> CommitRecord:
    handles = [
        TransactionHandle(ids.for_slot("a", slot), 4000 + slot, batch, 2, 10, (("t", "0-7"),)) for slot in range(transactions)
    ]
    prepared = tuple(PreparedTransaction(handle, slot, 77) for slot, handle in enumerate(handles))
    return CommitRecord(ids.query_id, batch, state, new_id("record"), 10 * transactions, prepared)


def committed(kafka: Kafka, settings: CommitLogSettings) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, as a consumer reads them that is not ours."""
    found = read_topic(kafka.bootstrap_servers, settings.topic, isolation_level="read_committed")
    return [(each.key, each.value) for each in found]


def until_committed(kafka: Kafka, settings: CommitLogSettings, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Markers are written after EndTxn was answered."""
    return until(lambda: committed(kafka, settings), lambda found: len(found) >= count, f"{count} records")
