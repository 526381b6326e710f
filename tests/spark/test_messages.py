from __future__ import annotations

import json
import pickle
import random
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from pyspark import cloudpickle

from spark_kafka_sink.errors import ClusterChangedError, UsageError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, TaskRows
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_ranges
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.spark.messages import (
    DeliveryMessage,
    check_clusters,
    report_from_bytes,
    report_to_bytes,
    reports_of,
    share_from_json,
    share_to_json,
    shares_of,
    total,
)
from tests.limits import calls_of
from tests.reports.test_partition_reports import of_1000_partitions
from tests.spark.reports import reports

BATCH = MicroBatch("query", 3)


def test_failed_tasks_have_no_report() -> None:
    assert total(
        reports_of([None, DeliveryMessage(0, DeliveryReport(records=2)), DeliveryMessage(1, DeliveryReport(records=3))])
    ) == (DeliveryReport(records=5))


def test_tasks_that_wrote_to_two_clusters_fail_their_write() -> None:
    one, other = DeliveryReport(clusters={"a"}), report_from_bytes(report_to_bytes(DeliveryReport(clusters={"b"})))
    check_clusters([one, DeliveryReport(), one])
    with pytest.raises(ClusterChangedError, match=r"several clusters.*: a, b"):
        check_clusters([one, other])


def test_the_shares_of_finished_tasks_are_those_that_have_one() -> None:
    share = TaskTransaction(MicroBatch("query", 3), None)
    messages = [DeliveryMessage(0, DeliveryReport(), share), None, DeliveryMessage(1)]
    assert shares_of(messages) == [share]
    assert pickle.loads(pickle.dumps(messages[0])) == messages[0]


def transaction(partitions: Sequence[int]) -> PreparedTransaction:
    where = partition_ranges(("topic-0", partition) for partition in partitions)
    return PreparedTransaction(TransactionHandle("prefix.query.ab.0", 2**40, 7, 5, 500_000, where), 2, 2**32 - 1)


@pytest.mark.parametrize(
    "share",
    [
        None,
        TaskTransaction(BATCH, None),
        TaskTransaction(BATCH, transaction(sorted(random.Random(1).sample(range(10_000), 1000)))),
    ],
)
def test_a_message_of_1000_partitions_is_small_and_its_report_is_added_quickly(share: TaskTransaction | None) -> None:
    """With an accumulator's update of the same size it is what a task returns; tasks times that must stay under
    spark.driver.maxResultSize, 1 GiB."""
    report = DeliveryReport(
        500_000, 50_000_000, partitions=of_1000_partitions(1), ack_latency={"topic-0": [99] * LATENCY_BUCKETS}
    )
    message = DeliveryMessage(3, report, share)
    packed = cloudpickle.dumps(message)  # type: ignore[no-untyped-call]
    assert pickle.loads(packed) == message
    assert len(packed) <= (8_000 if share is None or share.transaction is None else 10_500)
    assert calls_of(lambda: total([report, pickle.loads(packed).report])) < 3_000


def test_a_message_of_1000_topics_is_small_too() -> None:
    """Its partitions take 10 KB, and the latencies of each topic in a dictionary took 70."""
    numbers = random.Random(1)
    latencies = {
        f"topic-{number}": [0] * 4 + [numbers.randint(0, 99) for _ in range(4)] + [0] * (LATENCY_BUCKETS - 8)
        for number in range(1000)
    }
    report = DeliveryReport(500_000, 50_000_000, partitions=of_1000_partitions(1, 1000), ack_latency=latencies)
    packed = cloudpickle.dumps(DeliveryMessage(3, report))  # type: ignore[no-untyped-call]
    assert pickle.loads(packed) == DeliveryMessage(3, report)
    assert len(packed) <= 20_000


# Of a topic that is not named.
_LINE = b'[["t"],1,0,[1,0,0,0,0,0],[0,0,0,0,0,0]]'
GAP = zlib.compress(len(_LINE).to_bytes(4, "big") + _LINE)


@given(reports)
def test_a_report_comes_back_as_it_was(report: DeliveryReport) -> None:
    assert report_from_bytes(report_to_bytes(report)) == report


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"null", b'{"records": 1}', b'{"partitions": 5}', b"\xff"])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_bytes(text)


@pytest.mark.parametrize("partitions", [b"\n", b"\xff", zlib.compress(b""), zlib.compress(b"\0\0\0\x09[[],1]xxxx"), GAP])
def test_partitions_that_nobody_packed_are_refused(partitions: bytes) -> None:
    nothing = report_to_bytes(DeliveryReport())
    assert report_from_bytes(nothing) == DeliveryReport()
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_bytes(nothing + partitions)


@pytest.mark.parametrize(
    "latencies", [b"", b"\xff", zlib.compress(b""), zlib.compress(b"[]\n12345678"), zlib.compress(b'["t"]\n' + bytes(8))]
)
def test_latencies_that_nobody_packed_are_refused(latencies: bytes) -> None:
    line, _, _ = report_to_bytes(DeliveryReport()).partition(b"\n")
    values = json.loads(line) | {"latencies": len(latencies)}
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_bytes(json.dumps(values).encode() + b"\n" + latencies)


HANDLE = TransactionHandle("prefix.query.ab.0", 2**40, 7, 2, 12, (("töpic", "0-3,5"), ("other", "1")))


@pytest.mark.parametrize("transaction", [PreparedTransaction(HANDLE, 2, 2**32 - 1), None])
@pytest.mark.parametrize("rows", [TaskRows(2, 13, 2**32 - 1), None])
def test_a_share_comes_back_as_it_was(transaction: PreparedTransaction | None, rows: TaskRows | None) -> None:
    share = TaskTransaction(BATCH, transaction, rows)
    assert share_from_json(share_to_json(share), BATCH) == share


@pytest.mark.parametrize(
    "text", ["", "[]", "[[], null]", "[null, [1, 2]]", "{}x", '[["id", "x"]]', '[["id", "x", 0, 5, 1, [], 0, 0], null]']
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"batch 3 of query: .* another release of spark-kafka-sink than the driver"):
        share_from_json(text, BATCH)
