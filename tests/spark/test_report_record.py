"""The JSON of `report.topic`, which other programs read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, PartitionReport, PartitionReports
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.report_record import MOST_PARTITIONS, ReportRecord

REPORT = DeliveryReport(
    records=12,
    bytes=340,
    compressed_bytes=200,
    batches=3,
    requests=2,
    retries=1,
    errors={"NOT_LEADER_OR_FOLLOWER": 1},
    bad_rows={"too-large": 2},
    dead_letters=1,
    partitions=PartitionReports({("events", 0): PartitionReport(11, 300, 5, 15), ("ü", ALL_PARTITIONS): PartitionReport(1, 40)}),
    ack_latency={"events": [0, 0, 3, *[0] * (LATENCY_BUCKETS - 3)]},
)
BATCH = BatchReport("a1b2", 17, 1_700_000_000.25, 3.5, REPORT, "log/prefix")


def test_a_report_is_flat_json_with_an_entry_for_each_partition() -> None:
    found = json.loads(ReportRecord(BATCH, "orders", "exactly-once").value())
    assert found == {
        "version": 1,
        "query_id": "a1b2",
        "query_name": "orders",
        "sink": "log/prefix",
        "batch": 17,
        "guarantee": "exactly-once",
        "began": "2023-11-14T22:13:20.250Z",
        "seconds": 3.5,
        "records": 12,
        "bytes": 340,
        "compressed_bytes": 200,
        "batches": 3,
        "requests": 2,
        "retries": 1,
        "throttled_ms": 0,
        "rate_limited_ms": 0,
        "dead_letters": 1,
        "older_than_retention": 0,
        "errors": {"NOT_LEADER_OR_FOLLOWER": 1},
        "bad_rows": {"too-large": 2},
        "ack_latency_ms": {"4": 3},
        "partitions": [
            {"topic": "events", "partition": 0, "records": 11, "bytes": 300, "first_offset": 5, "last_offset": 15},
            {"topic": "ü", "partition": None, "records": 1, "bytes": 40, "first_offset": None, "last_offset": None},
        ],
    }


@pytest.mark.parametrize("batch", [BATCH, BatchReport("job-1", 0, 0.0, 0.0, DeliveryReport())])
def test_what_is_read_is_what_was_written_but_for_latencies_by_topic(batch: BatchReport) -> None:
    record = ReportRecord(batch, "", "at-least-once")
    found = ReportRecord.of(record.value())
    report = found.batch.report
    assert found._replace(batch=replace(found.batch, report=batch.report)) == record
    assert replace(report, ack_latency={}) == replace(batch.report, ack_latency={})
    assert list(report.ack_latency.values()) == list(batch.report.ack_latency.values())
    assert found.value() == record.value()


def test_a_report_of_many_partitions_is_smaller_than_a_record_may_be() -> None:
    name = "t" * 249
    parts = {
        (f"{name[:-6]}{topic:06}", number): PartitionReport(2**40, 2**50, 2**60, 2**61)
        for topic in range(400)
        for number in range(5)
    }
    value = ReportRecord(replace(BATCH, report=DeliveryReport(partitions=PartitionReports(parts))), "", "none").value()
    assert len(json.loads(value)["partitions"]) <= MOST_PARTITIONS
    assert len(value) < 512 * 1024


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"no json", b"[]", b"{}", b"\xff", b"[" * 100_000),
        *(b'{"version": 1}', b'{"version": "1"}', b'{"version": true}'),
    ],
)
def test_what_is_no_report_is_told(value: bytes | None) -> None:
    with pytest.raises(UsageError, match="it is not a report of spark-kafka-sink"):
        ReportRecord.of(value)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"errors": []}, {"errors": None}, {"ack_latency_ms": []}, {"ack_latency_ms": {"1" + "0" * 30: 1}}),
        *({"records": 2**63}, {"batch": -1}, {"version": 0.5}, {"guarantee": "\x1b]0;owned"}, {"began": "soon"}),
        {"partitions": [{}]},
    ],
)
def test_a_report_with_a_wrong_field_is_none(wrong: dict[str, object]) -> None:
    fields = json.loads(ReportRecord(BATCH, "", "none").value())
    with pytest.raises(UsageError, match="it is not a report of spark-kafka-sink"):
        ReportRecord.of(json.dumps({**fields, **wrong}).encode())


def test_a_report_of_an_earlier_release_may_lack_counts() -> None:
    fields = json.loads(ReportRecord(BATCH, "", "none").value())
    del fields["rate_limited_ms"]
    assert ReportRecord.of(json.dumps(fields).encode()).batch.report.rate_limited_ms == 0


def test_a_newer_report_names_its_version_and_unknown_fields_do_no_harm() -> None:
    fields = json.loads(ReportRecord(BATCH, "", "none").value())
    assert ReportRecord.of(json.dumps({**fields, "new": 1}).encode()).batch.batch == 17
    with pytest.raises(UsageError, match=r"report of version 2, and this release reads versions up to 1; upgrade"):
        ReportRecord.of(json.dumps({**fields, "version": 2}).encode())
