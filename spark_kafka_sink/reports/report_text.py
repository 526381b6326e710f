"""A delivery report as text of several lines, for terminals: totals, problems, throughput, partitions and latencies."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from spark_kafka_sink.counts import counted
from spark_kafka_sink.reports.report_facts import (
    Fact,
    Latency,
    Partitions,
    Point,
    by_count,
    latency_of,
    more_partitions,
    partitions_of,
    percent,
    printable,
    thinned,
    throughput_title,
    totals,
)

if TYPE_CHECKING:
    from spark_kafka_sink.reports.delivery_report import DeliveryReport

_BAR_CELLS = 12
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_BLOCK = "█"
_HEIGHTS = "▁▂▃▄▅▆▇█"
_SPARKS = 60

HEADER = ("topic", "partition", "records", "share", "bytes", "first offset", "last offset")
_RIGHT = (False, True, True, False, True, True, True)


def report_text(
    report: DeliveryReport, facts: Sequence[Fact] = (), throughput: Iterable[Point] = (), *, encoding: str | None = None
) -> str:
    """Returns the report as lines of text.

    Args:
        report: The report.
        facts: More totals, which follow the first one.
        throughput: Points of (seconds, rows per second).
        encoding: Encoding of the terminal. None takes that of stdout. Text that it lacks is escaped, and bars are ASCII.
    """
    encoding = encoding or getattr(sys.stdout, "encoding", None) or "utf-8"
    blocks = has_blocks(encoding)
    partitions, latency = partitions_of(report.partitions), latency_of(report.ack_latency)
    first, *rest = totals(report, partitions)
    slowed = [Fact("slowed down", text) for text in report.slowed_down()]
    sections = [
        _facts([first, *facts, *rest, *slowed]),
        _errors(report),
        _bad_rows(report),
        _throughput(list(throughput), blocks),
        _partitions(partitions, blocks) if partitions.shown else "",
        _latency(latency, blocks) if latency else "",
    ]
    text = "\n\n".join(section for section in sections if section)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def bar(share: float, *, blocks: bool = True) -> str:
    """Returns a bar of up to 12 characters for a share from 0 to 1. Any share above 0 is visible."""
    if not blocks:
        return "#" * max(round(share * _BAR_CELLS), share > 0)
    full, eighths = divmod(max(round(share * _BAR_CELLS * 8), share > 0), 8)
    return _BLOCK * full + _EIGHTHS[eighths]


def has_blocks(encoding: str) -> bool:
    """Returns whether an encoding has the characters of bars and of `sparkline`."""
    try:
        f"{_HEIGHTS}{''.join(_EIGHTHS)}".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _facts(facts: Sequence[Fact]) -> str:
    width = max(len(fact.label) for fact in facts)
    return "\n".join(f"{fact.label:<{width}}  {fact.value}{f' ({fact.note})' if fact.note else ''}" for fact in facts)


def _errors(report: DeliveryReport) -> str:
    return "\n".join(["Rejected batches by error", *_counts(report.errors)]) if report.errors else ""


def _bad_rows(report: DeliveryReport) -> str:
    if not report.bad_rows:
        return ""
    ended = f"{counted(report.dead_letters, 'dead letter')}, {report.dropped:,} dropped"
    lines = [f"Bad rows by reason: {ended}", *_counts(report.bad_rows)]
    if report.bad_row_example:
        lines.append(f"  example: {printable(report.bad_row_example)}")
    return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> list[str]:
    rows = [(printable(name), f"{count:,}") for name, count in by_count(counts)]
    return _indented(_aligned(rows, (False, True)))


def _throughput(points: Sequence[Point], blocks: bool) -> str:
    title, drawn = throughput_title(points), thinned(points, _SPARKS)
    most = max((rate for _, rate in drawn), default=0.0)
    if not blocks or most <= 0:
        return title
    return f"{title}\n  {sparkline([rate for _, rate in drawn])}"


def sparkline(values: Sequence[float]) -> str:
    """Returns a character for each value, as high as the value is in relation to the largest one."""
    most, highest = max(values, default=0.0), len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[max(round(value / most * highest), 0) if most > 0 else 0] for value in values)


def _partitions(partitions: Partitions, blocks: bool) -> str:
    width = max(len(bar(one.bar, blocks=blocks)) for one in partitions.shown)
    rows = [
        (
            printable(one.topic),
            one.number,
            f"{one.records:,}",
            f"{bar(one.bar, blocks=blocks):<{width}} {percent(one.share):>7}",
            f"{one.bytes:,}",
            *one.offsets,
        )
        for one in partitions.shown
    ]
    more = more_partitions(partitions)
    return "\n".join([*_aligned([HEADER, *rows], _RIGHT), *([more] if more else [])])


def _latency(latency: Latency, blocks: bool) -> str:
    """Returns the quantiles, then a line for each bucket."""
    most = max(count for _, count in latency.buckets)
    rows = [(name, f"{count:,}", bar(count / most, blocks=blocks)) for name, count in latency.buckets]
    return "\n".join([latency.title, *_indented(_aligned(rows, (True, True, False)))])


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Returns a line for each row, with the cells in columns. right: whether a column is aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width) for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
