"""Shows delivery reports as one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.counts import counted
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS

if TYPE_CHECKING:
    from spark_kafka_sink.reports.delivery_report import DeliveryReport


def summary(report: DeliveryReport) -> str:
    """Returns the counts in one line."""
    sums = sum(partition == ALL_PARTITIONS for _, partition in report.partitions)
    parts = [
        counted(report.records, "record"),
        f"{counted(report.bytes, 'byte')} ({report.compressed_bytes:,} sent)",
        f"{counted(report.batches, 'batch', 'batches')} in {counted(report.requests, 'request')}",
        counted(report.retries, "retry", "retries"),
        counted(len(report.partitions) - sums, "topic-partition"),
        *([counted(sums, "topic as a sum", "topics as sums")] if sums else []),
        *report.slowed_down(),
    ]
    commits = ""
    if report.commits:
        ended = f"{counted(report.transactions_committed, 'transaction')} committed, {report.transactions_aborted:,} aborted"
        commits = f"; {ended} in {counted(report.commits, 'commit')} of {report.commit_ms / report.commits:,.0f} ms on average"
    bad_rows = f"; {report.bad_rows_text()}" if report.bad_rows else ""
    return ", ".join(parts) + commits + bad_rows + errors_text(report, "; errors: ")


def errors_text(report: DeliveryReport, before: str = "") -> str:
    """Returns the number of rejected batches for each error, by Kafka's name of it, or an empty string if there are none."""
    return before + ", ".join(f"{name} {count:,}" for name, count in sorted(report.errors.items())) if report.errors else ""
