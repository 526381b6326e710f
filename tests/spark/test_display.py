from __future__ import annotations

from spark_kafka_sink.producer.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.display import MAX_PARTITIONS, html_table, summary, table
from spark_kafka_sink.spark.messages import total


def report(partitions: int, topic: str = "t") -> DeliveryReport:
    return DeliveryReport(
        records=1000,
        bytes=2000,
        partitions=PartitionReports(
            {(topic, number): PartitionReport(10, 20, -1 if number == 1 else 5, 1234) for number in range(partitions)}
        ),
    )


def test_a_summary_counts_and_names_errors() -> None:
    counted = report(2)
    counted.errors = {"NOT_LEADER_OR_FOLLOWER": 2, "DISCONNECTED": 1}
    text = summary(counted)
    assert text.startswith("1,000 records, 2,000 bytes")
    assert text.endswith("2 topic-partitions; errors: DISCONNECTED 1, NOT_LEADER_OR_FOLLOWER 2")
    assert "errors" not in summary(report(1))


def test_a_summary_tells_what_slowed_the_delivery_down() -> None:
    counted = report(1)
    counted.add(DeliveryReport(throttled_ms=1200, rate_limited_ms=2_600_000))
    told = "1 topic-partition, throttled by broker quotas for 1.2 s, held back by the rate limit for 2,600.0 s"
    assert summary(counted).endswith(told)
    assert "rate limit" not in summary(report(1))
    assert "throttled" not in summary(report(1))


def test_a_summary_tells_of_commits_where_there_are_some() -> None:
    counted = report(1)
    assert "commits" not in summary(counted)
    counted.add(DeliveryReport(commits=2, transactions_committed=16, transactions_aborted=1, commit_ms=81))
    assert summary(counted).endswith("; 16 transactions committed, 1 aborted in 2 commits of 40 ms on average")


def test_a_table_has_a_line_for_each_partition_and_marks_unknown_offsets() -> None:
    lines = table(report(2)).splitlines()
    assert lines[0].split() == ["topic", "partition", "records", "bytes", "first", "offset", "last", "offset"]
    assert [line.split() for line in lines[1:]] == [["t", "0", "10", "20", "5", "1,234"], ["t", "1", "10", "20", "?", "1,234"]]


def test_many_partitions_are_counted_not_listed() -> None:
    assert table(report(MAX_PARTITIONS + 7)).endswith("and 7 more topic-partitions")
    assert len(table(report(MAX_PARTITIONS + 7)).splitlines()) == MAX_PARTITIONS + 2
    assert "more topic-partitions" not in html_table(report(MAX_PARTITIONS))


def test_names_of_topics_are_escaped_in_html() -> None:
    assert "<td>a&lt;b</td>" in html_table(report(1, "a<b"))


def test_bad_rows_are_shown_by_reason_with_what_became_of_them() -> None:
    report = DeliveryReport(records=5, bad_rows={"too-large": 1, "header": 2}, dead_letters=2)
    text = "3 bad rows (header 2, too-large 1), 2 dead letters and 1 dropped"
    assert text in summary(report)
    assert text in repr(report)
    assert (report.delivered, report.dropped) == (3, 1)
    assert "bad row" not in summary(DeliveryReport(records=5))


def test_the_sum_of_reports_has_all_bad_rows_and_one_example_in_any_order() -> None:
    some = DeliveryReport(bad_rows={"header": 1}, dead_letters=1, bad_row_example="b")
    more = DeliveryReport(bad_rows={"header": 2, "topic": 1}, bad_row_example="a")
    for reports in ((some, more, DeliveryReport()), (DeliveryReport(), more, some)):
        found = total(reports)
        assert (found.bad_rows, found.dead_letters, found.bad_row_example) == ({"header": 3, "topic": 1}, 1, "a")
