from __future__ import annotations

import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport, ack_latencies_ms, warn_of_old_rows
from spark_kafka_sink.spark.driver.history import MOST_BATCHES, History
from tests.spark.reports import reports

UUID = "b44074e6-598d-4b2d-877c-aec61ca3ef32"


def report(**counts: Any) -> DeliveryReport:
    buckets = [0] * LATENCY_BUCKETS
    buckets[3], buckets[7] = 98, 2  # [4, 8) and [64, 128) ms
    return DeliveryReport(ack_latency={"t": buckets}, **counts)


def batch(number: int = 0, query: str = UUID, seconds: float = 2.0, **counts: Any) -> BatchReport:
    return BatchReport(query, number, 1_700_000_000.0 + number, seconds, report(**counts))


@given(st.text(max_size=40), st.integers(0, 2**40), st.floats(0, 2e9), st.floats(0, 1e6), reports)
def test_a_batch_report_survives_as_bytes(query: str, number: int, began: float, seconds: float, counts: DeliveryReport) -> None:
    one = BatchReport(query, number, began, seconds, counts)
    assert BatchReport.from_bytes(one.to_bytes()) == one


@pytest.mark.parametrize(("fraction", "bound"), [(0.0, 1), (0.5, 8), (0.98, 8), (0.99, 128), (1.0, 128)])
def test_a_latency_is_the_upper_bound_of_its_bucket(fraction: float, bound: float) -> None:
    assert ack_latencies_ms(report(), [fraction]) == [bound]


def test_a_batch_reads_as_one_line() -> None:
    counts = report(records=12_000, bytes=3_400_000, retries=1, commits=1, commit_ms=40, throttled_ms=500)
    counts.bad_rows, counts.dead_letters = {"header": 2}, 2
    assert str(BatchReport(UUID, 17, 0.0, 1.5, counts)) == (
        f"batch 17 of {UUID}: 12,000 rows in 1.5 s (8,000 rows/s), 3.4 MB, 99 % of batches acknowledged within 128 ms,"
        " commit 40 ms, 1 retry, 2 bad rows (header 2), 2 dead letters, throttled by broker quotas for 0.5 s"
    )
    named = BatchReport(UUID, 17, 0.0, 1.0, DeliveryReport()).line("clicks\n")
    assert named == r"batch 17 of clicks\n: 0 rows in 1.0 s (0 rows/s), 0.0 MB, 0 retries"
    assert str(BatchReport("job-1", 0, 0.0, 0.0, DeliveryReport())) == "job-1: 0 rows in 0.0 s (0 rows/s), 0.0 MB, 0 retries"


def test_a_query_is_warned_of_old_rows_once(caplog: pytest.LogCaptureFixture) -> None:
    for rows in (0, 7, 8):
        warn_of_old_rows("some-query", rows)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(
        "query some-query: 7 rows are older than retention.ms of the topic: brokers delete such records soon"
    )


def test_the_history_has_the_numbers_of_each_batch_of_a_query() -> None:
    history = History()
    counts = report(records=100, bytes=5000, compressed_bytes=400, retries=3, commit_ms=7, transactions_committed=2)
    counts.errors, counts.bad_rows, counts.dead_letters = {"A": 2, "B": 1}, {"header": 4}, 3
    history.add(BatchReport(UUID, 5, 1_700_000_000.5, 0.25, counts))
    history.add(batch(0, "job-1"))
    (row,) = history.of(UUID).to_arrow().to_pylist()
    began = row.pop("began")
    assert (began.timestamp(), str(began.tzinfo)) == (1_700_000_000.5, "UTC")
    assert row == {
        "batch": 5,
        "seconds": 0.25,
        "rows": 100,
        "bytes": 5000,
        "compressed_bytes": 400,
        "retries": 3,
        "errors": 3,
        "bad_rows": 4,
        "dead_letters": 3,
        "ack_p50_ms": 8.0,
        "ack_p95_ms": 8.0,
        "ack_p99_ms": 128.0,
        "commit_ms": 7,
        "transactions": 2,
    }
    frame = history.of(UUID).to_pandas()
    assert list(frame["rows"]) == [100]
    assert str(frame["rows"].dtype) == "Int64"  # as in the tables of reports
    assert list(history.of(UUID).rows_per_second()) == [400.0]


def test_a_latency_that_there_is_not_is_null() -> None:
    history = History()
    history.add(BatchReport(UUID, 0, 0.0, 1.0, DeliveryReport()))
    assert history.of(UUID).to_arrow()["ack_p99_ms"].to_pylist() == [None]


@pytest.mark.parametrize("added", [0, 1, 7, 8, 9, 23])
def test_the_newest_stay_in_order(added: int) -> None:
    history = History(most=8)
    for number in range(added):
        history.add(batch(number, UUID if number % 2 else "job-1"))
    kept = range(max(added - 8, 0), added)
    assert history.of(UUID).to_arrow()["batch"].to_pylist() == [number for number in kept if number % 2]
    assert history.of("job-1").to_arrow()["batch"].to_pylist() == [number for number in kept if not number % 2]


def test_queries_come_with_the_newest_first() -> None:
    history = History()
    for number, query in enumerate(("a", "b", "a", "c")):
        history.add(batch(number, query))
    assert history.query_ids() == ["c", "a", "b"]


def test_a_query_that_is_not_known_has_no_batches() -> None:
    unknown = History().of("x")
    assert (len(unknown), unknown.rows) == (0, 0)
    assert unknown.to_arrow().schema.field("began").type == pa.timestamp("us", "UTC")
    assert repr(unknown).startswith("0 micro-batches of x, 0 rows")


def test_the_last_ten_are_shown_as_a_table() -> None:
    history = History()
    for number in range(12):
        history.add(batch(number, records=1_000 * number, bytes=2_500_000))
    lines = repr(history.of(UUID)).splitlines()
    assert lines[0] == f"12 micro-batches of {UUID}, 66,000 rows"
    assert lines[1].split("  ")[-1] == "bad rows"
    assert [line.split()[0] for line in lines[2:]] == [str(number) for number in range(2, 12)]
    assert lines[-1].split()[2:] == ["2.00", "11,000", "5,500", "2.5", "128", "0", "0", "0"]
    assert len({len(line) for line in lines[1:]}) == 1


def test_a_hundred_thousand_batches_take_less_than_20_mb() -> None:
    """A tenth of them, because memory is traced slowly."""
    one, kept = batch(records=1), MOST_BATCHES // 10
    tracemalloc.start()
    try:
        history = History(kept)
        for _ in range(kept + 100):
            history.add(one)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(history.of(UUID)) == kept
    assert size < 2_000_000
