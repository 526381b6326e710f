"""Commit records as bytes and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.commit_record import (
    CHUNK_BYTES,
    CommitRecord,
    CommitRecordError,
    PreparedTransaction,
    State,
    TaskRows,
    decode,
    decode_key,
    encode,
    encode_key,
)
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.every import every
from tests.exactly_once.kept_logs import FORMAT_1

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LONG = st.integers(-(2**63), 2**63 - 1)
HANDLES = st.builds(
    TransactionHandle,
    transactional_id=TEXT,
    producer_id=LONG,
    epoch=st.integers(0, 32767),
    transaction_version=st.integers(1, 2),
    records=LONG,
    partitions=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
)
RECORDS = st.builds(
    CommitRecord,
    query_id=TEXT,
    batch=LONG,
    state=st.sampled_from(State),
    record_id=TEXT,
    rows=LONG,
    transactions=st.lists(st.builds(PreparedTransaction, HANDLES, LONG, LONG), max_size=6).map(tuple),
    committed=st.lists(TEXT, max_size=4).map(tuple),
    aborted=st.lists(TEXT, max_size=4).map(tuple),
    checkpoint=TEXT,
    name=TEXT,
    tasks=st.lists(st.builds(TaskRows, LONG, LONG, LONG), max_size=6).map(tuple),
    topic_ids=st.lists(st.tuples(TEXT, st.uuids().map(str)), max_size=3).map(tuple),
)


def chunks(record: CommitRecord, chunk_bytes: int = CHUNK_BYTES) -> dict[int, bytes]:
    return dict(enumerate(encode(record, chunk_bytes)))


def changed(value: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(value), **fields}).encode()


def a_record(transactions: int = 1) -> CommitRecord:
    each = [
        PreparedTransaction(TransactionHandle(f"p.q.a.{n}", 1000 + n, 7, 2, 10, (("t", "0-7"),)), n, 99)
        for n in range(transactions)
    ]
    return CommitRecord("q", 3, State.PREPARED, "r1", 10 * transactions, tuple(each))


@given(record=RECORDS, chunk_bytes=st.sampled_from([1, 100, 300, CHUNK_BYTES]))
def test_what_is_written_is_what_is_read_in_however_many_chunks(record: CommitRecord, chunk_bytes: int) -> None:
    assert decode(chunks(record, chunk_bytes)) == record


@pytest.mark.slow
def test_the_record_of_ten_thousand_tasks_is_in_chunks_that_brokers_accept_by_default() -> None:
    assert len(encode(a_record(200))) == 1
    made = encode(a_record(10_000))
    assert len(made) > 1
    assert max(map(len, made)) < 1_000_000  # max.message.bytes is 1 MiB and 12 bytes
    assert decode(dict(enumerate(made))) == a_record(10_000)


@given(query_id=TEXT, chunk=st.integers(0, 2**31))
def test_keys_tell_query_and_chunk(query_id: str, chunk: int) -> None:
    assert decode_key(encode_key(query_id, chunk), "log") == (query_id, chunk)


def test_each_key_stays_what_it_is_forever() -> None:
    assert encode_key("6f7c-Ä", 2) == '["6f7c-Ä",2]'.encode()


def test_people_can_read_a_record() -> None:
    (value,) = encode(a_record())

    assert json.loads(value) == {
        "format": 2,
        "query_id": "q",
        "batch": 3,
        "state": "prepared",
        "record_id": "r1",
        "rows": 10,
        "checkpoint": "",
        "chunks": 1,
        "chunk": 0,
        "transactions": [
            {"id": "p.q.a.0", "pid": 1000, "epoch": 7, "version": 2, "rows": 10, "to": [["t", "0-7"]], "task": 0, "sum": 99}
        ],
        "committed": [],
        "aborted": [],
    }


def test_a_record_of_a_batch_with_dropped_rows_tells_of_every_tasks_rows() -> None:
    (value,) = encode(replace(a_record(), tasks=(TaskRows(0, 12, 99), TaskRows(1, 3, 98))))

    found = json.loads(value)
    assert (found["format"], found["rows"], found["tasks"]) == (3, 10, [[0, 12, 99], [1, 3, 98]])


def test_a_prepared_record_has_the_ids_of_its_topics() -> None:
    topic_id = "0190a5c2-0000-7000-8000-000000000001"
    (value,) = encode(replace(a_record(), topic_ids=(("t", topic_id),)))

    assert (json.loads(value)["format"], json.loads(value)["topic_ids"]) == (4, [["t", topic_id]])
    with pytest.raises(CommitRecordError, match="topic id"):
        decode({0: changed(value, topic_ids=[["t", "x"]])})


def test_chunks_of_a_longer_record_before_are_of_no_account() -> None:
    longer = chunks(a_record(50), 1000)

    assert decode({**longer, **chunks(a_record())}) == a_record()


FIRST = encode(a_record(50), 1000)[0]


def transaction(**changes: object) -> dict[str, object]:
    known: dict[str, object] = json.loads(FIRST)["transactions"][0]
    return {**known, **changes}


@every(
    "values, match",
    [
        ({0: changed(FIRST, format=5)}, "has a record of format 5 in the commit log, this version reads formats up to 4"),
        ({0: changed(FIRST, format=0)}, "has a record of format 0 in the commit log, this version reads formats up to 4"),
        ({0: changed(FIRST, format=3, chunks=1)}, "tasks = None"),
        ({0: changed(FIRST, tasks=[])}, "unknown fields: tasks"),
        ({0: changed(FIRST, format=3, chunks=1, tasks=[[0, 1]])}, r"the task \[0, 1\]: another version wrote it"),
        ({0: changed(FIRST, format=3, chunks=1, tasks=[[0, 1, True]])}, r"the task \[0, 1, True\]"),
        ({0: changed(FORMAT_1, transactions=[transaction()])}, "unknown fields: version"),
        ({0: FORMAT_1.replace(b'"end_txn":5', b'"end_txn":6')}, "end_txn = 6: a newer version wrote it"),
        ({0: FORMAT_1.replace(b'"format":1', b'"format":2')}, "unknown fields: end_txn"),
        ({0: changed(FIRST, transactions=[transaction(version=3)], chunks=1)}, "version = 3: a newer version wrote it"),
        ({0: changed(FIRST, format=None)}, "format = None"),
        ({0: changed(FIRST, new=1, newer=2)}, "unknown fields: new, newer; a newer version"),
        ({0: changed(FIRST, state="half", chunks=1)}, "unknown state 'half': a newer version"),
        ({0: changed(FIRST, batch="3", chunks=1)}, "batch = '3': another version wrote it"),
        ({0: changed(FIRST, batch=True, chunks=1)}, "batch = True: another version wrote it"),
        ({0: changed(FIRST, transactions=[5], chunks=1)}, "the transaction 5"),
        ({0: changed(FIRST, transactions=[{"id": "x", "what": 1}], chunks=1)}, "unknown fields: what"),
        ({0: changed(FIRST, transactions=[{"id": "x"}], chunks=1)}, "pid = None"),
        ({0: changed(FIRST, transactions=[transaction(to=[["t"]])], chunks=1)}, r"the partitions \['t'\]"),
        ({0: changed(FIRST, committed=[7], chunks=1)}, "the transactional id 7"),
        ({0: FIRST}, "chunk 1 of a record in the commit log is missing"),
        ({1: FIRST}, "chunk 0 of a record in the commit log is missing"),
        ({0: FIRST, 1: changed(FIRST, record_id="r2")}, "chunk 1 of query q in the commit log is another record's"),
        ({0: FIRST, 1: b'{"format":2}'}, "record_id = None: another version wrote it"),
        ({0: b"[" * 100_000}, "not this sink's"),
        ({0: b"{"}, "has b'{', which is not this sink's"),
        ({0: b"\xff"}, "not this sink's"),
        ({0: b"[]"}, "not this sink's"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_why(values: Mapping[int, bytes], match: str) -> None:
    with pytest.raises(CommitRecordError, match=match):
        decode(values)


@every("key", [None, b"", b"user-7", b'["q"]', b'["q","0"]', b'{"q":0}', b'[0,"q"]', b"[" * 100_000])
def test_somebody_elses_keys_are_an_error(key: Any) -> None:
    with pytest.raises(CommitRecordError, match=r"topic log has a record with the key .*, which this sink did not write"):
        decode_key(key, "log")
