"""Reports as text for terminals."""

from __future__ import annotations

import io
import re
import sys

import pytest

from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.reports.report_facts import MAX_PARTITIONS, MAX_TEXT, latency_of, run_facts
from spark_kafka_sink.reports.report_text import report_text
from spark_kafka_sink.spark.messages import total
from tests.every import every
from tests.producer.reports import eventful, histogram, many_partitions

EVENTFUL = r"""
records      1,000 (998 delivered, 2 dead letters)
time         1.2 s (800 rows/s)
tasks        2 (400 to 600 records each)
bytes        100,000 (40,000 sent, ratio 2.50)
batches      37 (in 12 requests)
retries      3
partitions   3 (2 to 600 records each, median 300, and 1 topic as a sum)
commits      2 (4 transactions committed, 1 aborted; on average 40 ms, 12 ms from the decision until rows are visible)
slowed down  throttled by broker quotas for 1.2 s

Rejected batches by error
  NOT_LEADER_OR_FOLLOWER  2
  DISCONNECTED            1

Bad rows by reason: 2 dead letters, 1 dropped
  header     2
  too-large  1
  example: [HEADER] the header \x1b[31m<b>&'" is not valid

Throughput up to 800 rows/s in 2.0 s
  ▁▅█

topic    partition  records  share                  bytes  first offset  last offset
events           0      300  ██████        30.0 %  30,000            10          309
events           1      600  ████████████  60.0 %  60,000             7          606
letters          0        2  ▏              0.2 %     200             ?            ?
wide           all       98  ██             9.8 %   9,800             ?            ?

Time to acknowledgement of 37 batches: p50 < 16 ms, p95 < 16 ms, p99 < 64 ms
    2 to 4 ms   1  ▍
    4 to 8 ms   5  ██
   8 to 16 ms  30  ████████████
  16 to 32 ms   0
  32 to 64 ms   1  ▍
"""


def test_the_text_shows_everything_that_happened() -> None:
    facts = run_facts(1.25, 800.0, [400, 600])
    assert report_text(eventful(), facts, [(0, 0), (1, 400), (2, 800)], encoding="utf-8") == EVENTFUL.strip("\n")


def test_what_did_not_happen_is_left_out() -> None:
    assert str(DeliveryReport()).splitlines() == [
        "records     0",
        "bytes       0 (0 sent)",
        "batches     0 (in 0 requests)",
        "retries     0",
        "partitions  0",
    ]


def test_print_shows_the_text_and_the_repr_stays_one_line() -> None:
    report = eventful()
    assert str(report) == report_text(report)
    assert "\n" not in repr(report)


def test_a_terminal_without_block_characters_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    report = DeliveryReport(partitions=PartitionReports({("töpic", 0): PartitionReport(3), ("töpic", 1): PartitionReport(1)}))
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    print(report, flush=True)
    lines = printed.getvalue().decode("ascii").splitlines()
    assert [line.split()[:4] for line in lines[-2:]] == [["t\\xf6pic", "0", "3", "############"], ["t\\xf6pic", "1", "1", "####"]]
    assert "Throughput up to 9 rows/s" in report_text(report, (), [(1, 9)], encoding="ascii")


def test_of_many_partitions_those_with_the_most_records_are_listed() -> None:
    lines = str(many_partitions(MAX_PARTITIONS + 7)).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("topic "))
    listed = [int(line.split()[1]) for line in lines[start + 1 : start + 1 + MAX_PARTITIONS]]
    assert listed == list(range(MAX_PARTITIONS + 6, 6, -1))
    hidden = "and 7 more topic-partitions with 1.7 % of the records; those with the most records are shown"
    assert lines[start + 1 + MAX_PARTITIONS] == hidden
    assert "more topic-partition" not in str(many_partitions(MAX_PARTITIONS))


@every(
    "buckets, quantiles",
    [
        ({"b0": 1}, ["p50 < 1 ms", "p95 < 1 ms", "p99 < 1 ms"]),
        ({"b1": 50, "b2": 45, "b3": 4, "b4": 1}, ["p50 < 2 ms", "p95 < 4 ms", "p99 < 8 ms"]),
        ({"b1": 49, "b2": 45, "b3": 4, "b4": 2}, ["p50 < 4 ms", "p95 < 8 ms", "p99 < 16 ms"]),
        ({"b9": 1, "b10": 1, "b14": 1}, ["p50 < 1.1 s", "p95 < 17 s", "p99 < 17 s"]),
        ({f"b{LATENCY_BUCKETS - 1}": 1}, ["p50 over 4,194 s", "p95 over 4,194 s", "p99 over 4,194 s"]),
    ],
)
def test_a_quantile_is_the_upper_bound_of_its_bucket(buckets: dict[str, int], quantiles: list[str]) -> None:
    found = latency_of({"t": histogram(**buckets)})
    assert found is not None
    assert found.quantiles == quantiles


def test_latencies_of_topics_are_added_and_none_are_no_latency() -> None:
    found = latency_of({"a": histogram(b1=1), "b": histogram(b1=2, b3=4)})
    assert found is not None
    assert (found.batches, found.buckets) == (7, [("1 to 2 ms", 3), ("2 to 4 ms", 0), ("4 to 8 ms", 4)])
    assert found.edges == ["1 ms", "2 ms", "4 ms", "8 ms"]
    assert latency_of({}) is latency_of({"a": histogram()}) is None


def test_a_long_text_is_cut_and_stays_in_one_line() -> None:
    text = str(DeliveryReport(bad_rows={"header": 1}, bad_row_example="a\nb" + "x" * 1000))
    (line,) = [line for line in text.splitlines() if line.startswith("  example: ")]
    assert line.startswith("  example: a\\nbxxx")
    assert line.endswith("xxx...")
    assert len(line) <= MAX_TEXT + len("  example: ") + 1


def test_points_that_are_no_numbers_are_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    text = report_text(DeliveryReport(), (), [(0, nan), (inf, 5), (3, 10), (1, -5)], encoding="utf-8")
    assert "Throughput up to 10 rows/s in 3.0 s\n  ▁█" in text
    assert "Throughput" not in report_text(DeliveryReport(), (), [(0, nan)])


def test_a_summary_is_one_line_of_every_count_that_there_is() -> None:
    assert DeliveryReport(records=5).line().startswith("5 records, 0 bytes")
    assert not re.search("commit|error|throttled|rate limit|bad row", DeliveryReport(records=5).line())
    assert eventful().line() == (
        "1,000 records, 100,000 bytes (40,000 sent), 37 batches in 12 requests, 3 retries, 3 topic-partitions, 1 topic as a sum,"
        " throttled by broker quotas for 1.2 s; 4 transactions committed, 1 aborted in 2 commits of 40 ms on average;"
        " 3 bad rows (header 2, too-large 1), 2 dead letters and 1 dropped; errors: DISCONNECTED 1, NOT_LEADER_OR_FOLLOWER 2"
    )


def test_the_sum_of_reports_has_all_bad_rows_and_one_example_in_any_order() -> None:
    some = DeliveryReport(bad_rows={"header": 1}, dead_letters=1, bad_row_example="b")
    more = DeliveryReport(bad_rows={"header": 2, "topic": 1}, bad_row_example="a")
    for reports in ((some, more, DeliveryReport()), (DeliveryReport(), more, some)):
        found = total(reports)
        assert (found.bad_rows, found.dead_letters, found.bad_row_example) == ({"header": 3, "topic": 1}, 1, "a")
