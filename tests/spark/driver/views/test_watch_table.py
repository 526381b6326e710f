from __future__ import annotations

import pytest

from spark_kafka_sink.spark.driver.views.watch_table import ENDED, Reading, WatchTable, duration
from spark_kafka_sink.spark.query_totals import BATCH_JOBS, QueryTotals

QUERY = "b44074e6-598d-4b2d-877c-aec61ca3ef32"
NOW = 1_700_000_000.0


def totals(batches: int = 1, last_s: float = NOW, records: int = 1000, **more: int) -> QueryTotals:
    acks = (4.0, 8.0, 128.0)
    fields = {"last_batch": 17, "last_bytes": 3_000_000, "last_commit_ms": 40, "retries": 3, **more}
    return QueryTotals(batches, batches * records, last_s, 2.0, records, acks, **fields)


def cells(table: WatchTable) -> list[dict[str, str]]:
    """Each query's cells by their header."""
    header, *lines = table.table(10)
    starts = [header.index(name) + len(name) for name in header.split("  ") if name]
    assert starts == sorted(starts)
    queries = [query for query in (QUERY, "other", BATCH_JOBS) if any(line.startswith(query[:8]) for line in lines)]
    rows = table.rows(queries)
    return [dict(zip((column.header for column in table.columns), row, strict=True)) for row in rows]


def test_a_line_has_the_numbers_of_the_last_micro_batch() -> None:
    table = WatchTable()
    assert table.take(Reading(NOW + 5, {QUERY: totals()})) == [QUERY]
    (line,) = cells(table)
    assert line == {
        "query": "b44074e6",
        "batch": "17",
        "ago": "5 s",
        "rows": "1,000",
        "seconds": "2.0",
        "rows/s": "500",
        "MB/s": "1.5",
        "ack p50 ms": "4",
        "p99 ms": "128",
        "commit ms": "40",
        "retries": "3",
        "lag": "",
        "state": "",
        "trend": "█",
    }


def test_only_queries_that_have_committed_since_are_new() -> None:
    table = WatchTable()
    table.take(Reading(NOW, {QUERY: totals(), "other": totals()}))
    assert table.take(Reading(NOW + 1, {QUERY: totals(), "other": totals(2, NOW + 1)})) == ["other"]
    assert table.take(Reading(NOW + 2, {QUERY: totals(), "other": totals(2, NOW + 1)})) == []


def test_the_lag_says_by_how_much_the_next_commit_is_later_than_usual() -> None:
    table = WatchTable()
    for number in range(5):
        table.take(Reading(NOW + number * 10, {QUERY: totals(number + 1, NOW + number * 10)}))
    table.take(Reading(NOW + 49, {QUERY: totals(5, NOW + 40)}))
    assert cells(table)[0]["lag"] == "0 s"
    table.take(Reading(NOW + 75, {QUERY: totals(5, NOW + 40)}))
    assert cells(table)[0]["lag"] == "25 s"


def test_micro_batches_that_no_reading_saw_do_not_make_the_usual_interval_longer() -> None:
    table = WatchTable()
    table.take(Reading(NOW, {QUERY: totals(1, NOW)}))
    table.take(Reading(NOW + 100, {QUERY: totals(11, NOW + 100)}))
    table.take(Reading(NOW + 115, {QUERY: totals(11, NOW + 100)}))
    assert cells(table)[0]["lag"] == "5 s"


def test_what_is_known_from_before_is_in_the_line_of_throughput_and_in_the_lag() -> None:
    table = WatchTable()
    table.seed(QUERY, [100.0, 500.0], [NOW - 10, NOW])
    table.take(Reading(NOW + 12, {QUERY: totals()}))
    assert cells(table)[0]["trend"] == "▂█"
    assert cells(table)[0]["lag"] == "2 s"


def test_a_restarted_driver_begins_again() -> None:
    table = WatchTable()
    for number in range(3):
        table.take(Reading(NOW, {QUERY: totals(number + 5, NOW + number)}))
    assert table.take(Reading(NOW + 90, {QUERY: totals(1, NOW + 90)})) == [QUERY]
    assert (cells(table)[0]["lag"], cells(table)[0]["trend"]) == ("", "█")


def test_queries_that_run_come_first_and_have_their_name_and_state() -> None:
    table = WatchTable()
    states = {"other": "Waiting for data to arrive", "new": "Initializing sources"}
    names = {"other": "orders\x1b[31m"}
    table.take(Reading(NOW + 1, {QUERY: totals(), "other": totals(), BATCH_JOBS: totals(3)}, states, names))
    header, *lines = table.table(10)
    assert [line.split()[0] for line in lines] == ["new", r"orders\x1b[31m", BATCH_JOBS, "b44074e6"]
    assert lines[3][header.index("state") :].startswith(ENDED)
    assert lines[1][header.index("state") :].startswith("Waiting for data to arrive")
    assert "3 jobs" in lines[2]


def test_a_query_that_has_ended_keeps_its_name_and_is_told_once_with_its_failed_writes() -> None:
    table = WatchTable()
    names = {QUERY: "clicks"}
    table.take(Reading(NOW, {QUERY: totals()}, {QUERY: "running"}, names))
    assert table.ended == []
    table.take(Reading(NOW + 1, {QUERY: totals()}, {}, names, {QUERY: 1, "other": 2, BATCH_JOBS: 3}))
    assert table.ended == [QUERY, "other"]
    assert list(map(table.how_ended, table.ended)) == ["clicks has ended, 1 write failed", "other has ended, 2 writes failed"]
    assert [row["state"] for row in cells(table)] == ["ended, 2 writes failed", "3 writes failed"]
    table.take(Reading(NOW + 2, {QUERY: totals()}, {}, names, {QUERY: 1, "other": 2}))
    assert table.ended == []


def test_a_narrow_terminal_goes_without_what_matters_least() -> None:
    table = WatchTable()
    for number in range(5):
        table.take(Reading(NOW + number, {QUERY: totals(number + 1, NOW + number)}, {QUERY: "Waiting for data to arrive"}))
    header, line = table.table(10, 79)
    assert max(len(header), len(line)) <= 79
    assert {"query", "batch", "rows/s", "lag", "state"} <= set(header.split())
    assert line.endswith("Waiting for data to arrive")


def test_a_query_that_has_ended_has_no_lag() -> None:
    table = WatchTable()
    for number in range(2):
        table.take(Reading(NOW + 90, {QUERY: totals(number + 1, NOW + number)}, {}))
    assert cells(table)[0]["lag"] == ""


def test_more_queries_than_rows_are_counted() -> None:
    table = WatchTable()
    table.take(Reading(NOW, {f"q{number:07}": totals(last_s=NOW + number) for number in range(12)}))
    lines = table.table(10)
    assert lines[1].startswith("q0000011")
    assert (len(lines), lines[-1]) == (12, "and 2 more")


def test_before_the_first_commit_it_says_so() -> None:
    assert WatchTable().table(5) == ["no query has committed yet"]


def test_a_latency_that_there_is_not_is_empty() -> None:
    table = WatchTable()
    table.take(Reading(NOW, {QUERY: QueryTotals(1, 0, NOW, 1.0, 0, (float("nan"),) * 3), "other": QueryTotals(1, 0, NOW)}))
    assert [line["p99 ms"] for line in cells(table)] == ["", ""]


@pytest.mark.parametrize(("seconds", "text"), [(0.9, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h")])
def test_a_duration_reads_in_its_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
