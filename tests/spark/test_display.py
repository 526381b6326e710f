from __future__ import annotations

from spark_kafka_sink.producer.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.display import summary
from spark_kafka_sink.spark.messages import total
from tests.producer.reports import eventful


def report(partitions: int, topic: str = "t") -> DeliveryReport:
    return DeliveryReport(
        records=1000,
        bytes=2000,
        partitions=PartitionReports(
            {(topic, number): PartitionReport(10, 20, -1 if number == 1 else 5, 1234) for number in range(partitions)}
        ),
    )


def test_a_summary_is_one_line_of_every_count() -> None:
    assert summary(eventful()) == (
        "1,000 records, 100,000 bytes (40,000 sent), 37 batches in 12 requests, 3 retries, 3 topic-partitions, 1 topic as a sum,"
        " throttled by broker quotas for 1.2 s; 4 transactions committed, 1 aborted in 2 commits of 40 ms on average;"
        " 3 bad rows (header 2, too-large 1), 2 dead letters and 1 dropped; errors: DISCONNECTED 1, NOT_LEADER_OR_FOLLOWER 2"
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
