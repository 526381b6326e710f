"""`spark-kafka-sink report tail`: the records of `report.topic`, as lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, PartitionReport, PartitionReports
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.report_record import ReportRecord

PARTITIONS = PartitionReports({("events", 0): PartitionReport(7, 70, 10, 16), ("logs", ALL_PARTITIONS): PartitionReport(1, 5)})


def report(query_id: str, batch: int, name: str) -> ReportRecord:
    of_batch = DeliveryReport(records=8, bytes=75, bad_rows={"too-large": 1}, partitions=PARTITIONS)
    return ReportRecord(BatchReport(query_id, batch, 1.0, 2.0, of_batch), name, "exactly-once")


REPORTS = [report("a1", 17, "orders"), report("a1", 18, "orders"), report("job-2", 0, "")]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        broker.create_topic("reports", 1)
        with sks.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send("reports", b"something else")
            for each in REPORTS:
                producer.send("reports", each.value(), key=each.batch.query_id.encode())
        yield broker.bootstrap_servers


def tail(servers: str, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["report", "tail", "reports", "--bootstrap-servers", servers, *arguments])
    assert result.exit_code == 0, result.output
    return result


def test_a_report_is_a_line_and_what_is_none_is_noted(servers: str) -> None:
    found = tail(servers)
    lines = [line.split("  ", 1)[1] for line in found.stdout.splitlines()]
    counts = "8 rows in 2.0 s (4 rows/s), 0.0 MB, 0 retries, 1 bad row (too-large 1), 1 dropped, exactly-once"
    assert lines == [f"batch 17 of orders: {counts}", f"batch 18 of orders: {counts}", f"job-2: {counts}"]
    (note,) = found.stderr.splitlines()
    assert note == (
        "Note: topic reports: left out 1 record without a report, such as record 0 of partition 0: it is not a report of"
        " spark-kafka-sink"
    )


@pytest.mark.parametrize(
    ("arguments", "batches"),
    [
        (["--query", "orders"], [17, 18]),
        (["--query", "a1", "--batch", "17"], [17]),
        (["--query", "job-2"], [0]),
        (["--query", "other"], []),
        (["-n", "2"], [18, 0]),
        (["-n", "1", "--batch", "17"], [17]),
    ],
)
def test_a_query_or_a_batch_is_chosen_among_the_newest(servers: str, arguments: list[str], batches: list[int]) -> None:
    values = tail(servers, "--json", *arguments).stdout.splitlines()
    assert [ReportRecord.of(each.encode()).batch.batch for each in values] == batches


def test_nothing_found_is_told(servers: str) -> None:
    found = tail(servers, "--query", "other")
    assert (found.stdout, found.stderr.splitlines()[-1]) == (
        "",
        "Note: none of the newest 4 records of topic reports is such a report",
    )


def test_the_offsets_of_a_batch_are_below_its_line(servers: str) -> None:
    lines = tail(servers, "--batch", "17", "--partitions").stdout.splitlines()
    assert lines[1:] == ["  events-0: 7 rows, offsets 10 to 16", "  logs: 1 row"]
