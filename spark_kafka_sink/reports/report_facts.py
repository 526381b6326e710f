"""Facts of a delivery report that its text and its HTML show: totals, shares of partitions, bounds of latencies. No layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.counts import counted
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, bucket_of_rank, summed_latencies
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, NO_OFFSET, PartitionReports

if TYPE_CHECKING:
    from spark_kafka_sink.reports.delivery_report import DeliveryReport

# More partitions than this are counted, not listed: a report must stay readable.
MAX_PARTITIONS = 50
# A message of another machine may have any length, and so may a name in a report that a program has made.
MAX_TEXT = 300

QUANTILES = (50, 95, 99)

Point = tuple[float, float]
"""Seconds since the start, and rows per second at that time."""


class Fact(NamedTuple):
    """A count with its name. note: what it consists of, or ""."""

    label: str
    value: str
    note: str = ""


class PartitionShare(NamedTuple):
    """One line of the table of partitions.

    partition: None for the sum of a topic. share: of all records, from 0 to 1. bar: records in relation to the partition that has
    the most, from 0 to 1. first_offset, last_offset: None if unknown.
    """

    topic: str
    partition: int | None
    records: int
    bytes: int
    share: float
    bar: float
    first_offset: int | None
    last_offset: int | None

    @property
    def number(self) -> str:
        """The partition as text."""
        return "all" if self.partition is None else str(self.partition)

    @property
    def offsets(self) -> list[str]:
        """The first and the last offset as texts."""
        return ["?" if offset is None else f"{offset:,}" for offset in (self.first_offset, self.last_offset)]


class Partitions(NamedTuple):
    """The topic-partitions of a report.

    shown: all of them by topic and partition, or the MAX_PARTITIONS with the most records, those with the most first.
    hidden, hidden_share: number of the others, and their share of all records. sums: number of topics that are a single sum.
    least, median, most: records of one partition, without the sums; 0 if there is none.
    """

    shown: list[PartitionShare]
    hidden: int
    hidden_share: float
    sums: int
    least: int
    median: int
    most: int

    @property
    def single(self) -> int:
        """The number of topic-partitions without the sums of topics."""
        return len(self.shown) + self.hidden - self.sums


class Latency(NamedTuple):
    """Acknowledgement latencies of all topics.

    quantiles: texts such as "p50 < 8 ms". buckets: pairs of a range in words and its number of batches, without empty ends.
    edges: the limits of the buckets, one more than there are buckets.
    """

    batches: int
    quantiles: list[str]
    buckets: list[tuple[str, int]]
    edges: list[str]

    @property
    def title(self) -> str:
        """The quantiles in one line."""
        return f"Time to acknowledgement of {counted(self.batches, 'batch', 'batches')}: {', '.join(self.quantiles)}"


def totals(report: DeliveryReport, partitions: Partitions) -> list[Fact]:
    """Returns the counts that every report has, and those of commits and bad rows if there are some."""
    outcome = [f"{report.delivered:,} delivered", counted(report.dead_letters, "dead letter")] if report.dead_letters else []
    ratio = f", ratio {report.bytes / report.compressed_bytes:.2f}" if report.compressed_bytes else ""
    facts = [
        Fact("records", f"{report.records:,}", ", ".join(outcome)),
        Fact("bytes", f"{report.bytes:,}", f"{report.compressed_bytes:,} sent{ratio}"),
        Fact("batches", f"{report.batches:,}", f"in {counted(report.requests, 'request')}"),
        Fact("retries", f"{report.retries:,}"),
        Fact("partitions", f"{partitions.single:,}", _spread(partitions)),
    ]
    if report.commits:
        ended = f"{counted(report.transactions_committed, 'transaction')} committed, {report.transactions_aborted:,} aborted"
        visible = f"{report.prepare_to_visible_ms / report.commits:,.0f} ms from the decision until rows are visible"
        average = f"on average {report.commit_ms / report.commits:,.0f} ms, {visible}"
        facts.append(Fact("commits", f"{report.commits:,}", f"{ended}; {average}"))
    if report.older_than_retention:
        facts.append(Fact("older than retention.ms", f"{report.older_than_retention:,}", "brokers delete these records soon"))
    return facts


def _spread(partitions: Partitions) -> str:
    parts = []
    if partitions.single > 1:
        range_ = _range_of(partitions.least, partitions.most)
        parts.append(range_ if partitions.least == partitions.most else f"{range_}, median {partitions.median:,}")
    if partitions.sums:
        parts.append(f"and {counted(partitions.sums, 'topic as a sum', 'topics as sums')}")
    return ", ".join(parts)


def _range_of(least: int, most: int) -> str:
    return f"{counted(most, 'record')} each" if least == most else f"{least:,} to {counted(most, 'record')} each"


def run_facts(seconds: float, rows_per_second: float, task_records: Sequence[int]) -> list[Fact]:
    """Returns the duration of a publish() call, and its tasks with the records of the smallest and the largest."""
    spread = _range_of(min(task_records), max(task_records)) if len(task_records) > 1 else ""
    return [
        Fact("time", f"{seconds:,.1f} s", f"{rows_per_second:,.0f} rows/s"),
        Fact("tasks", f"{len(task_records):,}", spread),
    ]


def partitions_of(reports: PartitionReports) -> Partitions:
    """Returns the lines of the table of partitions. It makes objects only of those that are shown: 50,000 take 5 ms."""
    topics, numbers = reports.columns()
    topic, partition, records, size, first, last = numbers
    total = float(records.sum(dtype=np.float64))
    entries = len(records)
    order = np.arange(entries) if entries <= MAX_PARTITIONS else np.argsort(-records, kind="stable")[:MAX_PARTITIONS]
    most = max(int(records.max(initial=0)), 1)
    shown = [
        PartitionShare(
            topics[topic[row]],
            None if partition[row] == ALL_PARTITIONS else int(partition[row]),
            int(records[row]),
            int(size[row]),
            int(records[row]) / max(total, 1.0),
            int(records[row]) / most,
            None if first[row] == NO_OFFSET else int(first[row]),
            None if last[row] == NO_OFFSET else int(last[row]),
        )
        for row in order.tolist()
    ]
    hidden_share = max(1 - sum(one.share for one in shown), 0.0) if entries > len(shown) and total else 0.0
    single: NDArray[np.int64] = np.sort(records[partition != ALL_PARTITIONS])
    least, median, largest = (int(single[place]) for place in (0, len(single) // 2, -1)) if len(single) else (0, 0, 0)
    return Partitions(shown, entries - len(shown), hidden_share, entries - len(single), least, median, largest)


def more_partitions(partitions: Partitions) -> str:
    """Returns what the table of partitions leaves out, in words, or ""."""
    if not partitions.hidden:
        return ""
    hidden = counted(partitions.hidden, "more topic-partition")
    return f"and {hidden} with {percent(partitions.hidden_share)} of the records; those with the most records are shown"


def latency_of(histograms: Mapping[str, Sequence[int]]) -> Latency | None:
    """Returns the sum of the histograms by topic, or None if no batch was acknowledged."""
    counts = summed_latencies(histograms)
    batches = sum(counts)
    if not batches:
        return None
    used = [bucket for bucket, count in enumerate(counts) if count]
    shown = range(used[0], used[-1] + 1)
    edges = [_edge(shown.start - 1), *map(_edge, shown)]
    quantiles = [f"p{each} {_bound(counts, each)}" for each in QUANTILES]
    return Latency(batches, quantiles, [(_range(bucket), counts[bucket]) for bucket in shown], edges)


def _bound(counts: Sequence[int], quantile: int) -> str:
    """Returns the upper end of the bucket with the quantile: "< 8 ms". The last bucket has none, so its lower end is given."""
    bucket = bucket_of_rank(counts, -(-sum(counts) * quantile // 100))
    return _range(bucket) if bucket == LATENCY_BUCKETS - 1 else f"< {_edge(bucket)}"


def _edge(bucket: int) -> str:
    """Returns the upper limit of a bucket. The last has none."""
    if bucket < 0:
        return "0 ms"
    return "" if bucket == LATENCY_BUCKETS - 1 else _time(1 << bucket)


def _range(bucket: int) -> str:
    if bucket == 0:
        return "< 1 ms"
    if bucket == LATENCY_BUCKETS - 1:
        return f"over {(1 << (bucket - 1)) // 1000:,} s"
    low, high = _edge(bucket - 1), _edge(bucket)
    return f"{low.removesuffix(high[high.index(' ') :])} to {high}"


def _time(milliseconds: int) -> str:
    """Returns a duration rounded up, so that "less than" it stays true."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    tenths = math.ceil(milliseconds / 100)
    return f"{tenths / 10:.1f} s" if tenths < 100 else f"{math.ceil(milliseconds / 1000):,} s"


def throughput_title(points: Sequence[Point]) -> str:
    """Returns the highest rate in words, or "" without points."""
    known = thinned(points, len(points))
    return f"Throughput up to {max(rate for _, rate in known):,.0f} rows/s in {known[-1][0]:,.1f} s" if known else ""


def by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns the first MAX_PARTITIONS of counts by name, the highest first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_PARTITIONS]


def percent(share: float) -> str:
    """Returns a share from 0 to 1 as text: "33.3 %"."""
    return f"{share * 100:.1f} %"


def thinned(points: Iterable[Point], most: int) -> list[Point]:
    """Returns at most `most` points by time, each the average of as many neighbours. Points that are not finite are left out."""
    known = sorted(point for point in points if math.isfinite(point[0]) and math.isfinite(point[1]))
    width = -(-len(known) // most) if known else 1
    groups = (known[start : start + width] for start in range(0, len(known), width))
    return [(sum(at for at, _ in group) / len(group), sum(rate for _, rate in group) / len(group)) for group in groups]


def printable(text: str, most: int = MAX_TEXT) -> str:
    """Returns a text of another machine in one line, cut to `most` characters, with escapes for what could move a cursor."""
    start = text[: most + 1]
    if not start.isprintable():
        start = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in start)
    return start if len(start) <= most else f"{start[: most - 3]}..."
