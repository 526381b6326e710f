"""The table of a view on running queries, from what is known at one time after the other. Pure, and without PySpark."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import isnan
from statistics import median
from typing import Final
from unicodedata import east_asian_width

from spark_kafka_sink.counts import counted
from spark_kafka_sink.reports.report_facts import printable
from spark_kafka_sink.reports.report_text import sparkline
from spark_kafka_sink.spark.query_totals import BATCH_JOBS, NO_QUERIES, QueryTotals

MOST_POINTS: Final = 30
"""Of the line of throughput, one for each micro-batch that was seen."""

# Of the intervals between commits. Their median says when the next one is due.
_INTERVALS: Final = 20
_SHORT_ID: Final = 8
_MOST_NAME: Final = 24
_MOST_STATE: Final = 40

ENDED: Final = "ended"
NOTHING: Final = "no query has committed yet"


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that is known about the queries of a driver at one time.

    Attributes:
        now_s: The time, on the clock of the driver, in seconds since the epoch.
        totals: By query id.
        states: What the queries do that run, by id; None if it is not known which run.
        names: Those of queries that have one, by id.
        failed: Numbers of failed writes, by id.
    """

    now_s: float
    totals: Mapping[str, QueryTotals]
    states: Mapping[str, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """A query as it was seen: its last totals, the rates of its micro-batches, and the intervals between their commits."""

    totals: QueryTotals
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=_INTERVALS))


@dataclass(frozen=True, slots=True)
class _Line:
    query: str
    seen: _Seen | None
    state: str | None
    name: str
    now_s: float
    blocks: bool

    @property
    def label(self) -> str:
        return printable(self.name, _MOST_NAME) if self.name else _short(self.query)

    @property
    def has_ended(self) -> bool:
        return (self.state or "").startswith(ENDED)


class WatchTable:
    """Takes readings, and makes lines of text of the last one."""

    def __init__(self, *, blocks: bool = True) -> None:
        """blocks: whether the line of throughput may have characters beyond ASCII; without them it is left out.

        ended: the ids of the queries that have ended since the reading before.
        """
        self._blocks = blocks
        self._seen: dict[str, _Seen] = {}
        self._reading = Reading(0.0, {})
        self._running: frozenset[str] = frozenset()
        self._told: set[str] = set()
        self.ended: list[str] = []
        self.columns = tuple(column for column in _COLUMNS if blocks or column.header != _THROUGHPUT)

    def seed(self, query: str, rates: Iterable[float], ends_s: Iterable[float]) -> None:
        """Adds what is known of a query from before the first reading: a rate and a time of commit for each micro-batch."""
        seen = self._seen[query] = _Seen(QueryTotals())
        seen.rates.extend(rates)
        seen.intervals.extend(after - before for before, after in pairwise(ends_s))

    def take(self, reading: Reading) -> list[str]:
        """Takes a reading, and returns the ids of the queries that have committed since the one before."""
        ran, self._reading, committed = self._running, reading, []
        self._running = frozenset(reading.states or ())
        known = ran | reading.totals.keys() | reading.failed.keys()
        self.ended = [] if reading.states is None else sorted(known - self._running - self._told - NO_QUERIES)
        self._told = (self._told | set(self.ended)) - self._running
        for query, totals in reading.totals.items():
            seen = self._seen.get(query)
            if seen is None or totals.batches < seen.totals.batches:  # another driver's counts, from 0 on
                self._seen[query] = seen = _Seen(totals)
                seen.rates.append(_rate(totals.last_records, totals.seconds))
                committed.append(query)
                continue
            batches, before = totals.batches - seen.totals.batches, seen.totals
            seen.totals = totals
            if not batches:
                continue
            committed.append(query)
            if before.batches:
                seen.intervals.append((totals.last_s - before.last_s) / batches)
                seen.rates.append(_rate(totals.last_records, totals.seconds))
        for query in self._seen.keys() - reading.totals.keys():
            del self._seen[query]
        return committed

    def cells(self, most_rows: int) -> tuple[list[list[str]], int]:
        """Returns a header, and below it a row of cells for each query, and how many queries are left out.

        Those that run come first, then the others by their last commit. Columns without any cell are left out.
        """
        now = self._reading.now_s
        lines = sorted(self._lines(), key=lambda line: (line.has_ended, -(line.seen.totals.last_s if line.seen else now)))
        rows = [[column.cell(line) for column in self.columns] for line in lines[:most_rows]]
        kept = [place for place in range(len(self.columns)) if any(row[place] for row in rows)]
        header = [column.header for column in self.columns]
        return [[row[place] for place in kept] for row in (header, *rows)], max(len(lines) - most_rows, 0)

    def table(self, most_rows: int, most_columns: int = 1000) -> list[str]:
        """Returns the cells as lines of text. Of a narrow terminal, the columns that matter least are left out."""
        rows, hidden = self.cells(most_rows)
        if len(rows) == 1:
            return [NOTHING]
        for name in _LEAST:
            if max(map(width, aligned(rows))) <= most_columns:
                break
            rows = [[cell for cell, header in zip(row, rows[0], strict=True) if header != name] for row in rows]
        return [*aligned(rows), *([f"and {hidden:,} more"] if hidden else [])]

    def rows(self, queries: Sequence[str]) -> list[list[str]]:
        """Returns the cells of these queries, one for each of `columns`."""
        by_id = {line.query: line for line in self._lines()}
        return [[column.cell(by_id[query]) for column in self.columns] for query in queries if query in by_id]

    def how_ended(self, query: str) -> str:
        """Returns the name of a query that has ended, and its failed writes, as text."""
        return next((f"{line.label} has {line.state}" for line in self._lines() if line.query == query), "")

    def _lines(self) -> list[_Line]:
        states, names, failed = self._reading.states, self._reading.names, self._reading.failed
        queries = dict.fromkeys([*(states or ()), *self._reading.totals, *failed])
        made = []
        for query in queries:
            state = None if states is None or query in NO_QUERIES else printable(states.get(query, ENDED), _MOST_STATE)
            if failed.get(query):
                state = ", ".join(filter(None, [state, f"{counted(failed[query], 'write')} failed"]))
            made.append(_Line(query, self._seen.get(query), state, names.get(query, ""), self._reading.now_s, self._blocks))
        return made


@dataclass(frozen=True, slots=True)
class _Column:
    header: str
    cell: Callable[[_Line], str]
    width: int
    is_left: bool = False


def _of_last(text: Callable[[QueryTotals], str]) -> Callable[[_Line], str]:
    """Returns a cell about the last micro-batch, which is empty before the first."""
    return lambda line: text(line.seen.totals) if line.seen is not None else ""


def _batch(totals: QueryTotals, query: str) -> str:
    return f"{totals.batches:,} jobs" if query == BATCH_JOBS else f"{totals.last_batch:,}"


def _ack(totals: QueryTotals, place: int) -> str:
    known = len(totals.last_ack_ms) > place and not isnan(totals.last_ack_ms[place])
    return f"{totals.last_ack_ms[place]:,.0f}" if known else ""


def _lag(line: _Line) -> str:
    """Returns by how much the next commit is late. Nothing is due of a query that has ended, and of batch jobs."""
    if line.seen is None or line.has_ended or line.query == BATCH_JOBS or not line.seen.intervals:
        return ""
    return duration(max(line.now_s - line.seen.totals.last_s - median(line.seen.intervals), 0.0))


def _throughput(line: _Line) -> str:
    return sparkline(list(line.seen.rates)) if line.seen is not None and line.blocks else ""


_THROUGHPUT: Final = "trend"

_COLUMNS: Final = (
    _Column("query", lambda line: line.label, _SHORT_ID, is_left=True),
    _Column("batch", lambda line: "" if line.seen is None else _batch(line.seen.totals, line.query), 6),
    _Column("ago", lambda line: "" if line.seen is None else duration(max(line.now_s - line.seen.totals.last_s, 0.0)), 6),
    _Column("rows", _of_last(lambda one: f"{one.last_records:,}"), 10),
    _Column("seconds", _of_last(lambda one: f"{one.seconds:,.1f}"), 7),
    _Column("rows/s", _of_last(lambda one: f"{_rate(one.last_records, one.seconds):,.0f}"), 9),
    _Column("MB/s", _of_last(lambda one: f"{_rate(one.last_bytes, one.seconds) / 1e6:,.1f}"), 7),
    _Column("ack p50 ms", _of_last(lambda one: _ack(one, 0)), 10),
    _Column("p99 ms", _of_last(lambda one: _ack(one, 2)), 6),
    _Column("commit ms", _of_last(lambda one: f"{one.last_commit_ms:,}"), 9),
    _Column("retries", _of_last(lambda one: f"{one.retries:,}"), 7),
    _Column("lag", _lag, 6),
    _Column("state", lambda line: line.state or "", 10, is_left=True),
    _Column(_THROUGHPUT, _throughput, MOST_POINTS, is_left=True),
)

_LEAST: Final = (_THROUGHPUT, "ack p50 ms", "seconds", "MB/s", "commit ms", "retries", "p99 ms", "rows", "ago", "lag", "batch")
"""Columns in the order in which a narrow terminal goes without them."""

HEADER_WIDTHS: Final = {column.header: column.width for column in _COLUMNS}
"""The narrowest that a column is where lines follow each other, so that they are aligned whatever comes."""


def aligned(rows: Sequence[Sequence[str]], widths: Mapping[str, int] | None = None) -> list[str]:
    """Returns a line for each row, of which the first is the header. widths: the narrowest that a column may be."""
    lefts = {column.header for column in _COLUMNS if column.is_left}
    header = rows[0]
    wide = [max((widths or {}).get(name, 0), *(width(row[place]) for row in rows)) for place, name in enumerate(header)]
    return [
        "  ".join(
            padded(cell, columns, is_left=name in lefts) for cell, columns, name in zip(row, wide, header, strict=True)
        ).rstrip()
        for row in rows
    ]


def duration(seconds: float) -> str:
    """Returns "5 s", "12 min" or "3 h", rounded down."""
    if seconds < 120:
        return f"{int(seconds)} s"
    return f"{int(seconds // 60)} min" if seconds < 7200 else f"{int(seconds // 3600):,} h"


def _rate(count: int, seconds: float) -> float:
    return count / max(seconds, 1e-3)


def _short(query: str) -> str:
    """Returns the start of a query's id, which tells the few queries of a driver apart."""
    return query if query == BATCH_JOBS else printable(query, 40)[:_SHORT_ID]


# Widths of text in a terminal, where characters of East Asian scripts and emoji take two columns


def width(text: str) -> int:
    """Returns how many columns a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, most: int) -> str:
    """Returns the beginning of a text that takes at most `most` columns."""
    if text.isascii():
        return text[:most]
    return "".join(char for char, end in zip(text, accumulate(map(_columns, text)), strict=True) if end <= most)


def padded(text: str, columns: int, *, is_left: bool) -> str:
    """Returns a text with spaces, so that it takes `columns` columns. is_left: whether the text comes first."""
    spaces = " " * (columns - width(text))
    return text + spaces if is_left else spaces + text


def _columns(char: str) -> int:
    return 2 if east_asian_width(char) in "WF" else 1
