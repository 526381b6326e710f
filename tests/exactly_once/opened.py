"""Transactions that tests open, for others to end."""

from __future__ import annotations

import itertools
import os
import time

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.log_writer import LogWriter
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.records.small_batch import NewRecord
from tests.kafka.kafka import Kafka

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
