from __future__ import annotations

import re

from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.report_line import summary
from spark_kafka_sink.spark.messages import total
from tests.producer.reports import eventful


def test_a_summary_is_one_line_of_every_count_that_there_is() -> None:
    assert summary(DeliveryReport(records=5)).startswith("5 records, 0 bytes")
    assert not re.search("commit|error|throttled|rate limit|bad row", summary(DeliveryReport(records=5)))
    assert summary(eventful()) == (
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
