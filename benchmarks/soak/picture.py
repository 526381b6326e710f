"""The picture of a soak run: memory, threads and files of each stream's processes, and how far behind the judge was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.pictures import COLORS, saved_figure
from benchmarks.soak.samples import Sample

Point = tuple[float, float]

POINTS = 120  # of a line: more make the file large, and cannot be told apart


def draw(
    path: Path, measured_on: str, samples: Sequence[Sample], lags: dict[str, list[Point]], restarts: Sequence[float]
) -> None:
    """Draws an SVG picture.

    Args:
        lags: by stream, pairs of seconds since the start and records that the judge was behind.
        restarts: when a broker was killed, in seconds since the start.
    """
    with saved_figure(path, measured_on, rows=2, size=(9, 6.4)) as (memory, threads, files, lag):
        for axes, figure, label in (
            (memory, "rss_mib", "memory, MiB"),
            (threads, "threads", "threads"),
            (files, "files", "file descriptors"),
        ):
            for (stream, role), color in zip(
                dict.fromkeys((one.stream, one.role) for one in samples), COLORS + COLORS, strict=False
            ):
                own = [one for one in samples if (one.stream, one.role) == (stream, role)]
                drawn = _peaks([(one.seconds / 60, getattr(one, figure)) for one in own])
                style = "-" if stream == samples[0].stream else "--"
                axes.plot(*zip(*drawn, strict=True), color=color, linestyle=style, linewidth=1.2, label=f"{stream}: {role}")
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
        for (stream, points), color in zip(lags.items(), COLORS, strict=False):
            lag.plot(*zip(*_peaks([(x / 60, y) for x, y in points]), strict=True), color=color, linewidth=1.2, label=stream)
        lag.set_ylabel("records that the slow consumer is behind")
        for axes in (memory, threads, files, lag):
            for at in restarts:
                axes.axvline(at / 60, color="#dddddd", linewidth=0.8, zorder=0)
            axes.set_xlabel("minutes; a grey line: a broker is killed")
            axes.legend(frameon=False, fontsize=7)


def _peaks(points: Sequence[Point]) -> list[Point]:
    """Returns at most POINTS points: the highest of each stretch of the line."""
    size = -(-len(points) // POINTS)
    return [max(points[start : start + size], key=lambda point: point[1]) for start in range(0, len(points), size)]
