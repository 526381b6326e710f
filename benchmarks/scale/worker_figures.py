"""Figures of benchmarks/scale/workers.py: how they are made from what was seen, saved, and shown as tables and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pictures import COLORS, saved_figure
from benchmarks.scale.crowd import CONNECT, Event, Row
from docs.markdown import table

BIN_S = 0.1
STALLED_S = 1.0
METADATA = "Metadata"
TIMELINES = (CONNECT, METADATA)


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure at one number of workers. at: of a timeline, in seconds since a broker was killed; otherwise 0."""

    workers: int
    figure: str
    value: float
    at: float = 0.0


# Column of a table -> figure, and how it is written.
_COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "What a worker costs": {
        "connections per broker": ("connections", "{:,.0f}"),
        "file descriptors": ("files", "{:,.1f}"),
        "memory idle, KiB": ("idle KiB", "{:,.0f}"),
        "CPU idle, ms/s": ("idle ms/s", "{:.2f}"),
        "CPU active, ms/s": ("active ms/s", "{:.2f}"),
        "rows/s in total": ("rows/s", "{:,.0f}"),
        "memory of a broker, MiB": ("broker MiB", "{:,.0f}"),
    },
    "All start, and later open a transaction, at one moment": {
        "start, s": ("start s", "{:.1f}"),
        "attempts to connect": (f"start {CONNECT}", "{:.2f}"),
        "Metadata": (f"start {METADATA}", "{:.2f}"),
        "transaction, s": ("exactly-once s", "{:.1f}"),
        "its attempts to connect": (f"exactly-once {CONNECT}", "{:.2f}"),
        "its Metadata": (f"exactly-once {METADATA}", "{:.2f}"),
    },
    "A broker is killed and starts again": {
        "down, s": ("down s", "{:.1f}"),
        "until all deliver, s": ("recovered s", "{:.1f}"),
        "attempts to connect": (f"restart {CONNECT}", "{:.1f}"),
        "Metadata": (f"restart {METADATA}", "{:.1f}"),
        "most in a second": (f"restart {METADATA} peak", "{:,.0f}"),
        "rows": ("rows", "{:,.0f}"),
        "Metadata per second afterwards": (f"quiet {METADATA} mean", "{:,.1f}"),
    },
}


def requests(events: Iterable[Event], workers: int, step: str) -> dict[str, float]:
    """Returns how many connection attempts and requests of each API one worker made on average."""
    counts = Counter(event.kind for event in events)
    return {f"{step} {kind}": number / workers for kind, number in counts.items()}


def busiest(times: Iterable[float], width_s: float) -> int:
    """Returns the most events in any window of this width."""
    seen = sorted(times)
    first, most = 0, 0
    for last, at in enumerate(seen):
        while at - seen[first] >= width_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def after_restart(
    events: Sequence[Event], rows: Sequence[Row], workers: int, killed: float, quiet: float, end: float
) -> dict[str, float]:
    """Returns the figures of a restart.

    Args:
        events: those since the broker was killed.
        rows: all delivered rows.
        workers: how many there are.
        killed: when the broker was killed.
        quiet: when all had recovered, so that metadata is requested for its age only.
        end: when the observation ended.
    """
    times = {kind: [event.at for event in events if event.kind == kind and event.at < end] for kind in TIMELINES}
    early = {kind: [at for at in seen if at < quiet] for kind, seen in times.items()}
    late = [at for at in times[METADATA] if at >= quiet]
    stalled = [row.acked - killed for row in rows if row.acked >= killed and row.acked - row.sent >= STALLED_S]
    return {
        "recovered s": max(stalled, default=0.0),
        f"restart {CONNECT}": len(early[CONNECT]) / workers,
        f"restart {CONNECT} peak": busiest(early[CONNECT], 0.1),
        f"restart {METADATA}": len(early[METADATA]) / workers,
        f"restart {METADATA} peak": busiest(early[METADATA], 1.0),
        f"quiet {METADATA} mean": len(late) / (end - quiet),
        f"quiet {METADATA} peak": busiest(late, 1.0),
    }


def judged(sent: Mapping[int, int], read: Counter[str]) -> dict[str, float]:
    """Returns how many rows are missing in a topic, and how many are there twice or more.

    Args:
        sent: how many rows each worker has sent. Row n of worker w is the text "w:n".
        read: how often each row was read.
    """
    expected = {f"{worker}:{row}" for worker, rows in sent.items() for row in range(rows)}
    doubled = sum(number > 1 for number in read.values())
    return {"rows": len(expected), "rows lost": len(expected - read.keys()), "rows doubled": doubled}


def timelines(workers: int, events: Iterable[Event], killed: float) -> list[Sample]:
    """Returns connection attempts and Metadata requests in each tenth of a second that had any."""
    bins = Counter((event.kind, int((event.at - killed) / BIN_S)) for event in events if event.kind in TIMELINES)
    return [
        Sample(workers, f"timeline {kind}", number, round(place * BIN_S, 1)) for (kind, place), number in sorted(bins.items())
    ]


def made_tables(measured_on: str, samples: Sequence[Sample]) -> str:
    """Returns the samples as Markdown tables, with a line for each number of workers."""
    found = {(sample.workers, sample.figure): sample.value for sample in samples}
    parts = []
    for title, columns in _COLUMNS.items():
        lines = [
            [f"{workers:,}", *(written.format(found.get((workers, figure), 0.0)) for figure, written in columns.values())]
            for workers in sorted({sample.workers for sample in samples})
        ]
        parts.append(f"**{title}**\n\n{table(['workers', *columns], lines).rstrip()}")
    return "\n\n".join([*parts, f"Measured on {measured_on}."]) + "\n"


def draw(path: Path, measured_on: str, samples: Sequence[Sample]) -> None:
    """Draws the timelines of the largest number of workers as an SVG picture."""
    most = max(sample.workers for sample in samples)
    titles = (f"{most:,} workers: connection attempts per 0.1 s", f"{most:,} workers: Metadata requests per 0.1 s")
    with saved_figure(path, measured_on) as plots:
        for axes, kind, title, color in zip(plots, TIMELINES, titles, COLORS, strict=False):
            own = [sample for sample in samples if sample.figure == f"timeline {kind}"]
            axes.bar([sample.at for sample in own], [sample.value for sample in own], BIN_S, align="edge", color=color)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("seconds since a broker was killed")
            axes.set_ylim(bottom=0)
