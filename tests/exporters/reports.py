"""Reports of commits for the exporters' tests."""

from __future__ import annotations

from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports
from spark_kafka_sink.spark.batch_report import BatchReport


def report(partitions: int = 2) -> DeliveryReport:
    buckets = [0] * LATENCY_BUCKETS
    buckets[0], buckets[3], buckets[-1] = 1, 98, 1
    of = {("t", number): PartitionReport(10, 200, 0, 9) for number in range(partitions)}
    return DeliveryReport(
        records=10 * partitions,
        bytes=200 * partitions,
        compressed_bytes=50,
        batches=3,
        requests=2,
        retries=1,
        throttled_ms=1500,
        errors={"NOT_LEADER_OR_FOLLOWER": 4},
        bad_rows={"header": 2},
        dead_letters=2,
        partitions=PartitionReports(of),
        ack_latency={"t": buckets},
        commits=1,
        commit_ms=250,
        transactions_committed=6,
        transactions_aborted=1,
    )


def of_topics(topics: int) -> BatchReport:
    """Returns the report of as many topics, where topic N has N + 1 records and acknowledged batches."""
    of = {(f"tenant-{number}", 0): PartitionReport(number + 1, 100, 0, number) for number in range(topics)}
    latencies = {f"tenant-{number}": [number + 1, *[0] * (LATENCY_BUCKETS - 1)] for number in range(topics)}
    return BatchReport("q", 3, 1_700_000_000.0, 2.5, DeliveryReport(partitions=PartitionReports(of), ack_latency=latencies))


def batch(query: str = "q", partitions: int = 2) -> BatchReport:
    return BatchReport(query, 3, 1_700_000_000.0, 2.5, report(partitions))
