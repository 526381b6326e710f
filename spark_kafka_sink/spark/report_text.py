"""Delivery reports for people: one line, a plain table, and the same as HTML for notebooks."""

from __future__ import annotations

from html import escape

from spark_kafka_sink.producer.partition_reports import ALL_PARTITIONS, NO_OFFSET
from spark_kafka_sink.producer.report import DeliveryReport

# More partitions than this are counted, not listed: a report must stay readable.
MAX_PARTITIONS = 50

_HEADER = ("topic", "partition", "records", "bytes", "first offset", "last offset")


def summary(report: DeliveryReport) -> str:
    """The counts in one line."""
    parts = [
        f"{report.records:,} records",
        f"{report.bytes:,} bytes ({report.compressed_bytes:,} sent)",
        f"{report.batches:,} batches in {report.requests:,} requests",
        f"{report.retries:,} retries",
        _partitions_text(report),
    ]
    return ", ".join(parts) + _commits_text(report) + errors_text(report, "; errors: ")


def _partitions_text(report: DeliveryReport) -> str:
    sums = sum(partition == ALL_PARTITIONS for _, partition in report.partitions)
    text = f"{len(report.partitions) - sums:,} topic-partitions"
    return f"{text}, {sums:,} topics as sums" if sums else text


def _commits_text(report: DeliveryReport) -> str:
    if not report.commits:
        return ""
    ended = f"{report.transactions_committed:,} transactions committed, {report.transactions_aborted:,} aborted"
    return f"; {ended} in {report.commits:,} commits of {report.commit_ms / report.commits:,.0f} ms on average"


def errors_text(report: DeliveryReport, before: str = "") -> str:
    """Refusals by Kafka's name of the error, or nothing when there were none."""
    return before + ", ".join(f"{name} {count:,}" for name, count in sorted(report.errors.items())) if report.errors else ""


def partition_rows(report: DeliveryReport) -> list[tuple[str, ...]]:
    """A row for each of the first MAX_PARTITIONS topic-partitions, under the names of the table's header."""
    rows = []
    for (topic, partition), one in sorted(report.partitions.items())[:MAX_PARTITIONS]:
        offsets = ("?" if offset == NO_OFFSET else f"{offset:,}" for offset in (one.first_offset, one.last_offset))
        name = "all" if partition == ALL_PARTITIONS else str(partition)
        rows.append((topic, name, f"{one.records:,}", f"{one.bytes:,}", *offsets))
    return rows


def table(report: DeliveryReport) -> str:
    """Topic-partitions as text, in columns."""
    rows = [_HEADER, *partition_rows(report)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines + ([_more(report)] if _more(report) else []))


def html_table(report: DeliveryReport) -> str:
    """The same table for a notebook."""
    header = "".join(f"<th>{name}</th>" for name in _HEADER)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in partition_rows(report))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{_more(report)}"


def _more(report: DeliveryReport) -> str:
    more = len(report.partitions) - MAX_PARTITIONS
    return f"and {more:,} more topic-partitions" if more > 0 else ""
