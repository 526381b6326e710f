"""A query that is upgraded in mid-life: what the version before wrote to the commit log still counts."""

from __future__ import annotations

import json

from spark_kafka_sink.exactly_once.commit_log import partition_of
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, encode_key
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.records.small_batch import NewRecord
from tests.exactly_once.opened import soon, writer
from tests.exactly_once.queries import PREFIX, Query


def log_in_format_1(query: Query, state: str, own: tuple[PreparedTransaction, ...]) -> None:
    """Writes batch 0 to the commit log, as the first version did."""
    value = {
        "format": 1,
        "query_id": query.id,
        "batch": 0,
        "state": state,
        "record_id": "00ff00ff00ff00ff",
        "rows": sum(each.handle.records for each in own),
        "checkpoint": "",
        "chunks": 1,
        "chunk": 0,
        "transactions": [
            {
                "id": each.handle.transactional_id,
                "pid": each.handle.producer_id,
                "epoch": each.handle.epoch,
                "end_txn": {1: 4, 2: 5}[each.handle.transaction_version],
                "rows": each.handle.records,
                "to": each.handle.partitions,
                "task": each.spark_partition,
                "sum": each.checksum,
            }
            for each in own
        ],
        "committed": [],
        "aborted": [],
    }
    query.log().ensure(soon())
    ids = TransactionalIds(PREFIX, query.id)
    log = writer(query.client, query.log_topic, ids.commit_log, partition=partition_of(query.id, 2))
    log.append([NewRecord(encode_key(query.id, 0), json.dumps(value).encode(), 0)], soon())
    log.commit(soon())


def test_a_batch_that_the_version_before_has_prepared_is_committed(any_query: Query) -> None:
    before = any_query.write("a", "b")
    log_in_format_1(any_query, "prepared", before)

    report = any_query.run(0, "a", "b")  # Spark replays it, and what it writes again is aborted

    assert (report.rows, report.own) == (2, False)
    any_query.expect("a", "b")
    assert any_query.open_ids() == []


def test_a_query_goes_on_after_a_batch_that_the_version_before_has_completed(any_query: Query) -> None:
    log_in_format_1(any_query, "complete", ())

    assert any_query.run(1, "c").rows == 1
    any_query.expect("c")
