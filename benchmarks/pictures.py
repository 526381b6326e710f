"""The curves of docs/performance.md, drawn from CSV files.

A CSV file begins with a comment that says when and on what it was measured, and the picture repeats it. The same file makes the
same picture, byte for byte, with the same matplotlib.
"""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import DataclassInstance
    from matplotlib.axes import Axes

_SampleT = TypeVar("_SampleT", bound="DataclassInstance")

KAFKA = "4.1.0"
CODECS = ("none", "lz4", "snappy", "zstd", "gzip")  # in the order of the codec curve
COLORS = ("#d55e00", "#0072b2", "#009e73")
_MARKERS = ("o", "s", "^")


class Curve(StrEnum):
    """What is varied. The value is the name of the file."""

    PARTITIONS = "partitions"
    ROW_SIZE = "row_size"
    CODEC = "codec"
    LINGER = "linger"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one point.

    cpu_us_per_row: CPU time of the process. batch_bytes: of an average batch, as it was sent. memory_mib: the most that the
    process had in memory so far, less what it had before the producer was made.
    """

    series: str
    x: float
    rows: int
    seconds: float
    cpu_us_per_row: float
    batch_bytes: int
    wire_bytes_per_row: float
    memory_mib: float


def machine(names: Sequence[str] = ("pyarrow", "numpy")) -> str:
    """Returns the date, what this machine is, and the versions of packages, in a line."""
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    today = datetime.now(UTC).date().isoformat()
    return (
        f"{today}; {_processor()}, {os.cpu_count()} cores, shared; Python {platform.python_version()}, {packages}; Kafka {KAFKA}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def keep(path: Path, measured_on: str, samples: Sequence[DataclassInstance]) -> None:
    """Writes samples of one class as CSV, after a comment with `measured_on`."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {measured_on}\n")
        writer = csv.DictWriter(file, [each.name for each in fields(samples[0])], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(sample) for sample in samples)


def kept(path: Path, kind: type[_SampleT]) -> tuple[str, list[_SampleT]]:
    """Reads what `keep` wrote: when and on what it was measured, and the samples. kind: their class, of str, int and float."""
    with path.open(encoding="utf-8", newline="") as file:
        measured_on = file.readline().removeprefix("# ").strip()
        rows = csv.DictReader(file)
        samples = [kind(**{each.name: _TYPES[str(each.type)](row[each.name]) for each in fields(kind)}) for row in rows]
    return measured_on, samples


_TYPES: Mapping[str, Callable[[str], Any]] = {"str": str, "float": float, "int": int}


def medians(samples: Sequence[Sample], figure: Callable[[Sample], float]) -> dict[str, list[tuple[float, float]]]:
    """Returns series -> (x, median of the figure), in the order of the samples."""
    found: dict[str, dict[float, list[float]]] = {}
    for sample in samples:
        found.setdefault(sample.series, {}).setdefault(sample.x, []).append(figure(sample))
    return {series: [(x, median(values)) for x, values in by_x.items()] for series, by_x in found.items()}


def draw(curve: Curve, folder: Path) -> None:
    """Draws a curve's CSV file of `folder` as an SVG picture beside it."""
    measured_on, samples = kept(folder / f"{curve}.csv", Sample)
    with saved_figure(folder / f"{curve}.svg", measured_on) as axes:
        _DRAWN[curve](axes, samples)


@contextmanager
def saved_figure(
    path: Path, measured_on: str, *, rows: int = 1, size: tuple[float, float] = (9, 3.6)
) -> Iterator[Sequence[Axes]]:
    """Yields two plots beside each other for each row. Saves them at the end, on white, so they can be read on a dark page.

    Args:
        size: width and height in inches.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    # Text as text keeps the file small; the salt makes the ids of one run those of the next.
    with mpl.rc_context(
        {"svg.hashsalt": "spark-kafka-sink", "svg.fonttype": "none", "font.size": 9, "font.sans-serif": ["DejaVu Sans"]}
    ):
        figure, grid = plt.subplots(rows, 2, figsize=size, layout="constrained")
        axes = list(grid.flat)
        yield axes
        for one in axes:
            one.spines[["top", "right"]].set_visible(False)
            one.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
            one.set_axisbelow(True)
        figure.supxlabel(f"measured on {measured_on}", fontsize=7, color="#666666")
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    # matplotlib ends lines with spaces.
    text = path.read_text(encoding="utf-8")
    path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()), encoding="utf-8")


def _lines(axes: Axes, samples: Sequence[Sample], figure: Callable[[Sample], float], label: str) -> None:
    for (series, line), color, marker in zip(medians(samples, figure).items(), COLORS, _MARKERS, strict=False):
        xs, ys = zip(*line, strict=True)
        axes.plot(xs, ys, color=color, marker=marker, markersize=4, linewidth=1.4, label=series)
    axes.set_xscale("log")
    ticks = sorted({sample.x for sample in samples})
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks], rotation=30 if len(ticks) > 6 else 0)
    axes.minorticks_off()
    axes.set_ylabel(label)


def _cpu(sample: Sample) -> float:
    return sample.cpu_us_per_row


def _batch_kib(sample: Sample) -> float:
    return sample.batch_bytes / 1024


def _partitions(axes: Sequence[Axes], samples: Sequence[Sample]) -> None:
    _lines(axes[0], samples, _cpu, "CPU, µs per row")
    _lines(axes[1], samples, _batch_kib, "size of a batch as sent, KiB")
    for one in axes:
        one.set_xlabel("partitions of the topic (rows of 100 bytes)")
        one.set_ylim(bottom=0)
        one.legend(title="compression.type", frameon=False)


def _row_size(axes: Sequence[Axes], samples: Sequence[Sample]) -> None:
    _lines(axes[0], samples, _cpu, "CPU, µs per row")
    axes[0].set_yscale("log")
    _lines(axes[1], samples, lambda sample: sample.x / sample.cpu_us_per_row, "values per CPU second, MB")
    axes[1].set_ylim(bottom=0)
    for one in axes:
        one.set_xlabel("bytes of a value (8 partitions)")
        one.legend(title="compression.type", frameon=False)


def _codec(axes: Sequence[Axes], samples: Sequence[Sample]) -> None:
    for one, figure, label in (
        (axes[0], _cpu, "CPU, µs per row"),
        (axes[1], lambda sample: sample.wire_bytes_per_row, "bytes per row as sent"),
    ):
        found = medians(samples, figure)
        for number, ((series, line), color) in enumerate(zip(found.items(), COLORS, strict=False)):
            places = [x + (number - (len(found) - 1) / 2) * 0.38 for x, _ in line]
            bars = one.bar(places, [value for _, value in line], 0.36, color=color, label=series)
            one.bar_label(bars, fmt=lambda value: f"{float(f'{value:.3g}'):,g}", fontsize=7)
        one.set_xticks(range(len(CODECS)), CODECS)
        one.set_yscale("log")
        one.set_ylabel(label)
        one.legend(title="JSON values of", frameon=False, fontsize=8)


def _linger(axes: Sequence[Axes], samples: Sequence[Sample]) -> None:
    _lines(axes[0], samples, _cpu, "CPU, µs per row")
    _lines(axes[1], samples, _batch_kib, "size of a batch as sent, KiB")
    axes[0].set_ylim(bottom=0)
    axes[1].set_yscale("log")
    for one in axes:
        one.set_xlabel("linger.ms (rows of 100 bytes, lz4)")
        one.legend(frameon=False)


def _memory(axes: Sequence[Axes], samples: Sequence[Sample]) -> None:
    # The peak never falls: the last run of a point has it.
    peaks = {(sample.series, sample.x): sample for sample in samples}
    _lines(axes[0], list(peaks.values()), lambda sample: sample.memory_mib, "peak memory of a worker for the sink, MiB")
    sizes = sorted({sample.x for sample in samples})
    axes[0].plot(sizes, sizes, color="#bbbbbb", linestyle="--", linewidth=1, label="buffer.memory itself")
    axes[0].set_ylim(bottom=0)
    _lines(axes[1], samples, _cpu, "CPU, µs per row")
    axes[1].set_ylim(bottom=0)
    for one in axes:
        one.set_xlabel("buffer.memory, MiB (8 partitions, no compression)")
        one.legend(frameon=False)


_DRAWN: Mapping[Curve, Callable[[Sequence[Axes], Sequence[Sample]], None]] = {
    Curve.PARTITIONS: _partitions,
    Curve.ROW_SIZE: _row_size,
    Curve.CODEC: _codec,
    Curve.LINGER: _linger,
    Curve.MEMORY: _memory,
}
