"""A delivery report of an eventful job, for tests of how reports look."""

from __future__ import annotations

from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, PartitionReport, PartitionReports


def histogram(**buckets: int) -> list[int]:
    """Returns a latency histogram: `histogram(b4=30)` has 30 batches in bucket 4."""
    return [buckets.get(f"b{number}", 0) for number in range(LATENCY_BUCKETS)]


def eventful() -> DeliveryReport:
    """Returns a report with errors, bad rows, a quota, commits, a topic as a sum and an unknown offset."""
    partitions = {
        ("events", 0): PartitionReport(300, 30_000, 10, 309),
        ("events", 1): PartitionReport(600, 60_000, 7, 606),
        ("letters", 0): PartitionReport(2, 200, -1, -1),
        ("wide", ALL_PARTITIONS): PartitionReport(98, 9_800),
    }
    return DeliveryReport(
        records=1000,
        bytes=100_000,
        compressed_bytes=40_000,
        batches=37,
        requests=12,
        retries=3,
        throttled_ms=1200,
        errors={"DISCONNECTED": 1, "NOT_LEADER_OR_FOLLOWER": 2},
        partitions=PartitionReports(partitions),
        ack_latency={"events": histogram(b2=1, b3=5, b4=29), "wide": histogram(b4=1, b6=1)},
        commits=2,
        transactions_committed=4,
        transactions_aborted=1,
        prepare_to_visible_ms=24,
        commit_ms=80,
        bad_rows={"header": 2, "too-large": 1},
        dead_letters=2,
        bad_row_example="[HEADER] the header \x1b[31m<b>&'\" is not valid",
    )


def many_partitions(count: int, topics: int = 1) -> DeliveryReport:
    """Returns a report of `count` partitions. The later a partition, the more records it has."""
    report = DeliveryReport(records=count * (count + 1) // 2, batches=count, ack_latency={"t0": histogram(b3=count)})
    reports = PartitionReports()
    for number in range(count):
        reports.count(f"t{number % topics}", number, number + 1, 10 * number, 0, number)
    report.partitions.add(reports)  # packed, as in a sum of tasks
    return report
