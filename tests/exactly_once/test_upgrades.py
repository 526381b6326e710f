"""A query that is upgraded in mid-life, and one that goes back: what a release keeps in Kafka means the same to the others."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest

from spark_kafka_sink.exactly_once.commit_log import partition_of
from spark_kafka_sink.exactly_once.commit_record import (
    NO_ID,
    CommitRecord,
    PreparedTransaction,
    State,
    TaskRows,
    decode,
    encode,
    encode_key,
)
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.exactly_once.row_checksum import RowChecksum
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.records.columns import RecordColumns
from tests.exactly_once.kept_logs import FORMAT_1, KEPT, VERSIONS, log_as
from tests.exactly_once.queries import PREFIX, Query

QUERY: Final = "6f7c0c1e-0000-4000-8000-00000000000a"
IDS: Final = TransactionalIds("sink", QUERY, "d1")

TRANSACTIONS: Final = (
    PreparedTransaction(TransactionHandle(IDS.for_slot("0aff", 0), 1000, 7, 2, 10, (("t", "0-7"), ("ü", "1"))), 0, 99),
    PreparedTransaction(TransactionHandle(IDS.for_slot("0aff", 1), 1001, 0, 1, 11, (("t", "1"),)), 1, 98),
    PreparedTransaction(TransactionHandle(IDS.for_slot("0b", 0), 1002, 0, 2, 0, (("reports", "0"),)), -1, 0),
)
FIRST, SECOND = (each.handle.transactional_id for each in TRANSACTIONS[:2])
TOPIC_IDS: Final = (("t", "0190a5c2-0000-7000-8000-000000000001"), ("ü", NO_ID))
TASKS: Final = (TaskRows(0, 12, 99), TaskRows(1, 11, 98))


def record(state: State, **given: Any) -> CommitRecord:
    return CommitRecord(QUERY, 3, state, "00ff00ff00ff00ff", 21, **given)


RECORDS: Final = {
    "prepared": record(State.PREPARED, transactions=TRANSACTIONS, checkpoint="/c", topic_ids=TOPIC_IDS, name="orders"),
    "prepared, rows dropped": record(State.PREPARED, transactions=TRANSACTIONS, tasks=TASKS),
    "prepared, old broker": record(State.PREPARED, transactions=TRANSACTIONS),
    "complete": record(State.COMPLETE, checkpoint="/c", name="orders"),
    "complete, a loss accepted": record(State.COMPLETE, transactions=TRANSACTIONS, aborted=(FIRST,)),
    "aborted": record(State.ABORTED, transactions=TRANSACTIONS),
    "closed": record(State.CLOSED, aborted=(FIRST, SECOND)),
    "replay": record(State.REPLAY, transactions=TRANSACTIONS, committed=(FIRST,), aborted=(SECOND,), tasks=TASKS),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_0_1_is_read_and_what_it_can_hold_is_written_so_that_0_1_reads_it(name: str) -> None:
    kept = KEPT["commit log"][name].encode()

    assert decode({0: kept}) == RECORDS[name]
    assert encode(RECORDS[name]) == [kept]


def test_a_querys_record_is_found_where_0_1_has_put_it() -> None:
    found = {"key": encode_key(QUERY, 0).decode(), "partition of 50": partition_of(QUERY, 50), "writes it": IDS.commit_log}

    assert found == KEPT["place in the commit log"]


def test_transactions_that_0_1_has_left_open_are_known_as_the_querys() -> None:
    task, log = KEPT["transactional ids"]["task"], KEPT["transactional ids"]["commit log"]

    assert (IDS.owns(task), TransactionalIds("sink", QUERY).owns(task), TransactionalIds("sink", QUERY, "d2").owns(task)) == (
        True,
        True,
        False,
    )
    assert (IDS.for_slot("0aff", 0), IDS.commit_log, IDS.owns(log)) == (task, log, False)


def test_a_replay_of_what_0_1_has_written_has_its_checksum() -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = RecordColumns(
        num_records=3,
        key=pa.array(["a", None, "ü"]),
        value=pa.array([b"1", b"", None]),
        headers=pa.array([[{"key": "h", "value": b"x"}], None, []], headers),
    )
    checksum = RowChecksum()
    checksum.add("t", columns)

    assert checksum.value == KEPT["checksum"]


def test_a_record_of_the_first_format_is_read() -> None:
    assert decode({0: FORMAT_1}) == CommitRecord(
        "q",
        3,
        State.PREPARED,
        "r1",
        21,
        (
            PreparedTransaction(TransactionHandle("p.q.a.0", 1000, 7, 1, 10, (("t", "0-7"),)), 0, 99),
            PreparedTransaction(TransactionHandle("p.q.a.1", 1001, 0, 2, 11, (("t", "1"),)), 1, 98),
        ),
        committed=("p.q.a.0",),
        checkpoint="/c",
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_an_older_version_has_prepared_is_committed(any_query: Query, version: str) -> None:
    before = any_query.write("a", "b")
    log_as(version, any_query.client, any_query.log_settings, TransactionalIds(PREFIX, any_query.id), 0, "prepared", before)

    report = any_query.run(0, "a", "b")  # Spark replays it, and what it writes again is aborted

    assert (report.rows, report.own) == (2, False)
    any_query.expect("a", "b")
    assert any_query.open_ids() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_query_goes_on_after_a_batch_that_an_older_version_has_completed(any_query: Query, version: str) -> None:
    log_as(version, any_query.client, any_query.log_settings, TransactionalIds(PREFIX, any_query.id), 0, "complete", ())

    assert any_query.run(1, "c").rows == 1
    any_query.expect("c")
