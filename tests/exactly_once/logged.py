"""Records of a commit log, and a reader that is not ours."""

from __future__ import annotations

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.options.commit_log_options import CommitLogSettings
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.exactly_once.opened import new_id
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import until


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
