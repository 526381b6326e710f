"""Shows delivery reports as one line, as a table and as HTML for notebooks."""

from __future__ import annotations

from html import escape

from spark_kafka_sink.counts import counted
from spark_kafka_sink.producer.partition_reports import ALL_PARTITIONS, NO_OFFSET
from spark_kafka_sink.producer.report import DeliveryReport

# More partitions than this are counted, not listed: a report must stay readable.
MAX_PARTITIONS = 50

_HEADER = ("topic", "partition", "records", "bytes", "first offset", "last offset")


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


def partition_rows(report: DeliveryReport) -> list[tuple[str, ...]]:
    """Returns a row of cells for each of the first MAX_PARTITIONS topic-partitions."""
    rows = []
    for (topic, partition), one in sorted(report.partitions.items())[:MAX_PARTITIONS]:
        offsets = ("?" if offset == NO_OFFSET else f"{offset:,}" for offset in (one.first_offset, one.last_offset))
        name = "all" if partition == ALL_PARTITIONS else str(partition)
        rows.append((topic, name, f"{one.records:,}", f"{one.bytes:,}", *offsets))
    return rows


def table(report: DeliveryReport) -> str:
    """Returns the topic-partitions as a plain table."""
    rows = [_HEADER, *partition_rows(report)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines + ([_more(report)] if _more(report) else []))


def html_table(report: DeliveryReport) -> str:
    """Returns the same table as HTML."""
    header = "".join(f"<th>{name}</th>" for name in _HEADER)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in partition_rows(report))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{_more(report)}"


def _more(report: DeliveryReport) -> str:
    more = len(report.partitions) - MAX_PARTITIONS
    return f"and {counted(more, 'more topic-partition')}" if more > 0 else ""
