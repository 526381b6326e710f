"""The tables of docs/performance.md and docs/measurements.md, and the README's figures, from docs/pictures/performance.csv.

`python -m docs` writes them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.cost.cells import BY_NAME, FILES, FILES_OF, CostCell
from benchmarks.cost.costs import Cost, Costs, CostSample, added, costs, jvm_ratio
from benchmarks.cost.picture import cells_picture, headline_picture
from benchmarks.figures import Spread
from benchmarks.pictures import kept
from benchmarks.results import CEILING, CONFLUENT, JVM, JVM_TUNED, KAFKA_PYTHON, PARQUET, SINK, SINK_EXACTLY_ONCE
from docs.markdown import table

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "pictures" / "performance.csv"
HEADLINE, ALL_CELLS = "performance.svg", "performance_cells.svg"

LABELS: Mapping[str, str] = {
    JVM: "Spark's own sink",
    JVM_TUNED: "Spark's own sink, tuned",
    SINK: "this sink",
    SINK_EXACTLY_ONCE: "this sink, exactly once",
    CONFLUENT: "confluent-kafka",
    KAFKA_PYTHON: "kafka-python",
    CEILING: "floor: Arrow into Python, dropped",
    PARQUET: "reading Parquet alone",
}

# What the README quotes.
README_CELLS = ("100B-json-lz4-8", "1KB-json-lz4-8")

_DETAILS = """Measured on {measured_on}. Figures are medians of {rounds}.

![CPU time per row of each contender, as a multiple of this sink]({pictures}{cells})

{details}
A run has {rows}.
confluent-kafka writes {confluent} of them and kafka-python {kafka_python}, because they take longer.
kafka-python takes part with 8 partitions only. The driver's Python processes, which are left out, took
{planners} s of CPU in a job of this sink.
"""


def summary() -> str:
    """Returns the table of docs/performance.md: this sink beside Spark's own."""
    measured_on, samples = kept(FILE, CostSample)
    return f"{_summary(costs(samples))}\nMeasured on {measured_on}.\n"


def details() -> str:
    """Returns the tables of docs/measurements.md."""
    return markdown(*kept(FILE, CostSample), pictures="pictures/")


def picture(name: str) -> str:
    """Returns a picture of docs/pictures/, HEADLINE or ALL_CELLS."""
    return PICTURES[name](*kept(FILE, CostSample))


def readme() -> str:
    """Returns README.md as it is, with its sentences on speed made again."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, samples = kept(FILE, CostSample)
    item = re.compile(r"- \*\*Fast\.\*\*.*?(?=^- \*\*)", re.DOTALL | re.MULTILINE)
    made, count = item.subn(lambda _: quoted(costs(samples)), text)
    if count != 1:
        raise ValueError("README.md has no item 'Fast.'")
    return made


def quoted(measured: Costs) -> str:
    """Returns the README's item on speed."""
    small, middle = (measured[name] for name in README_CELLS)
    ratios = {name: [_times(jvm_ratio(cell, SINK, name)) for cell in (small, middle)] for name in (JVM, JVM_TUNED, CONFLUENT)}
    text = (
        "- **Fast.** No Python code runs per row. For JSON rows of 100 bytes with lz4, Spark's own sink takes"
        f" {ratios[JVM][0]} times the executor CPU of this one, and {ratios[JVM][1]} times for rows of 1 KB. With batches as"
        f" large as here it takes {ratios[JVM_TUNED][0]} and {ratios[JVM_TUNED][1]} times. confluent-kafka, with its"
        f" defaults, takes {ratios[CONFLUENT][0]} and {ratios[CONFLUENT][1]} times."
        " [Performance](docs/performance.md) has all figures."
    )
    return textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


def _times(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def markdown(measured_on: str, samples: Sequence[CostSample], pictures: str = "") -> str:
    """Returns what each contender costs. pictures: their folder, relative to the page, with a slash at its end."""
    measured = costs(samples)
    planners = [cell[BY_NAME[name].ours].planners_s for name, cell in measured.items() if BY_NAME[name].ours in cell]
    return _DETAILS.format(
        pictures=pictures,
        cells=ALL_CELLS,
        measured_on=measured_on,
        rounds=_rounds(measured),
        details=_details(measured),
        rows=_rows(measured),
        planners=f"{median(planners or [0.0]):.2f}",
        confluent=_share(CONFLUENT),
        kafka_python=_share(KAFKA_PYTHON),
    )


def _rounds(measured: Costs) -> str:
    counts = {cost.runs for cell in measured.values() for cost in cell.values()}
    low, high = min(counts), max(counts)
    return (f"{low} rounds" if low > 1 else "one round") if low == high else f"{low} to {high} rounds"


def _rows(measured: Costs) -> str:
    """Returns how many rows a run of this sink has, by the size of a value."""
    rows = {
        BY_NAME[name].title.partition(",")[0].rpartition(" ")[0]: cell[BY_NAME[name].ours].rows for name, cell in measured.items()
    }
    return ", ".join(f"{count:,} rows of {size}" for size, count in rows.items())


def _share(contender: str) -> str:
    return {2: "half", 4: "a quarter", 8: "an eighth"}[FILES // FILES_OF[contender]]


def _summary(measured: Costs) -> str:
    head = ["values, codec, topic", "this sink, µs", "ratio", "ratio to tuned", "own share, µs", "Java's engine, µs", "rows/s"]
    return _numbers(head, [_line(BY_NAME[name], cell) for name, cell in measured.items()])


def _line(cell: CostCell, found: Mapping[str, Cost]) -> list[str]:
    return [
        cell.title,
        _cpu(found.get(cell.ours)),
        _ratio(jvm_ratio(found, cell.ours)),
        _ratio(jvm_ratio(found, cell.ours, JVM_TUNED)),
        _share_of(added(found, cell.ours, CEILING)),
        _share_of(added(found, JVM_TUNED, PARQUET)),
        _speed(found.get(cell.ours)),
    ]


def _details(measured: Costs) -> str:
    """Returns a table of the CPU time of a row, with a line for each cell and a column for each contender."""
    contenders = [name for name in LABELS if any(name in found for found in measured.values())]
    head = ["values, codec, topic", *(LABELS[name].partition(":")[0] for name in contenders)]
    lines = ([BY_NAME[name].title, *(_cpu(found.get(each)) for each in contenders)] for name, found in measured.items())
    return _numbers(head, [*lines])


def _numbers(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Returns a table whose columns are aligned as numbers, except for the first."""
    made = table(head, lines)
    return made.replace("| --- |" + " --- |" * (len(head) - 1), "| --- |" + " ---: |" * (len(head) - 1), 1)


def _cpu(cost: Cost | None) -> str:
    return "" if cost is None else _micros(cost.cpu)


def _micros(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _share_of(spread: Spread | None) -> str:
    return "" if spread is None else f"{_micros(spread.middle)} ({_micros(spread.low)} to {_micros(spread.high)})"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _speed(cost: Cost | None) -> str:
    """Returns rows per second with three digits that count."""
    return "" if cost is None else f"{float(f'{cost.rows_per_s:.3g}'):,.0f}"


PICTURES: Mapping[str, Callable[[str, Sequence[CostSample]], str]] = {
    HEADLINE: lambda measured_on, samples: headline_picture(costs(samples), LABELS, measured_on),
    ALL_CELLS: lambda measured_on, samples: cells_picture(costs(samples), LABELS, measured_on),
}


def write_drafts(folder: Path) -> list[str]:
    """Writes the tables and the pictures beside the CSV file of `folder`, and returns the names of all files."""
    measured_on, samples = kept(folder / FILE.name, CostSample)
    made = {"performance.md": markdown, **PICTURES}
    for name, text in made.items():
        (folder / name).write_text(text(measured_on, samples), encoding="utf-8")
    return [FILE.name, *made]
