"""docs/performance.md and the README's figures, made from docs/pictures/performance.csv. `python -m docs` writes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.cost.cells import BY_NAME, FILES, FILES_OF, CostCell
from benchmarks.cost.costs import Cost, Costs, CostSample, costs, jvm_ratio, over_floor
from benchmarks.cost.picture import cells_picture, headline_picture
from benchmarks.cost.schemas_section import SCHEMAS
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

_PAGE = """# Performance

This page shows what a row costs an executor: CPU time of Spark's JVM and of its Python workers. CPU
time decides how many rows a cluster writes. On a shared machine it also repeats, and rows per second
do not.

![CPU time per row in the executor, by sink]({pictures}{headline})

Measured on {measured_on}.

## Beside Spark's own sink

The table has medians of {rounds}. All contenders of a line take turns in one Spark application,
read the same Parquet files and send the same bytes. The tables further down say how many rows a run
has. In a short run, the start of the job is a large part of the time.

- **Ratio** is the CPU time of Spark's own sink divided by that of this sink. Above 1, this sink is
  cheaper.
- **Over the floor** is what this sink adds to the floor, as a share of it. The floor passes each row
  to Python as Arrow and drops it, so no Python data source can cost less.

{summary}
![CPU time per row of each contender, as a multiple of this sink]({pictures}{cells})

## All contenders

| name | what it is |
| --- | --- |
| Spark's own sink | `format("kafka")` with its defaults |
| Spark's own sink, tuned | the same with this sink's `batch.size`, `linger.ms` and zstd level |
| this sink | `format("kafka_sink")` with its defaults |
| confluent-kafka | `produce()` for each row in `foreachPartition` |
| kafka-python | version 3, `send()` for each row in `foreachPartition` |
| floor | a Python data source that drops its Arrow batches |
| reading Parquet alone | Spark's `noop` sink, without Python |

All times are µs of CPU per row. The range is that of the lowest and the highest round.

{details}{schemas}## How it is measured

- The JVM is driver and executor at once, because Spark runs in local mode. Planning a job is part
  of its time, at 0.2 to 0.3 s.
- Python is the time of all Python workers that run tasks, including workers that have ended.
- The broker is another process and is left out. So are the driver's Python processes, which plan
  and commit a job. They took about {planners} s of CPU in a job of this sink.
- Values are JSON text or Avro records of exactly the named size, with keys of 10 digits. Both are
  made before the measurement.
- confluent-kafka writes {confluent} of the rows and kafka-python {kafka_python}, because they take
  longer. kafka-python takes part with 8 partitions only.
- The order of contenders is reversed in every other round. The first rounds do not count, because
  the JVM compiles its code then.
- The topic of every run is counted afterwards. A run that lost rows has no figures.
- Spark's own sink has version 4.0.0, on the PySpark that is named above.

## On your machine

In a clone, with Java 17 and Maven:

```
make bench            # all lines: at most 45 minutes
make bench QUICK=1    # some lines, fewer rows: at most 10 minutes
```

Both print these tables and keep them in `build/bench/`. To measure one line, name it:

```
python -m benchmarks.cost --only {example}
python -m benchmarks.cost --keep    # also makes this page again
```

The data of this page is in [performance.csv](pictures/performance.csv). [Tuning](tuning.md) shows how
the settings change the cost.
"""


def page() -> str:
    """Returns docs/performance.md."""
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
    ratios = {name: [_times(jvm_ratio(cell, SINK, name)) for cell in (small, middle)] for name in (JVM, CONFLUENT)}
    text = (
        "- **Fast.** No Python code runs per row. For JSON rows of 100 bytes with lz4, Spark's own sink takes"
        f" {ratios[JVM][0]} times the executor CPU of this one, and {ratios[JVM][1]} times for rows of 1 KB. confluent-kafka"
        f" takes {ratios[CONFLUENT][0]} and {ratios[CONFLUENT][1]} times as much."
        " [Performance](docs/performance.md) has all figures."
    )
    return textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


def _times(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def markdown(measured_on: str, samples: Sequence[CostSample], pictures: str = "") -> str:
    """Returns the page. pictures: the folder of its pictures, relative to the page, with a slash at its end."""
    measured = costs(samples)
    planners = [cell[BY_NAME[name].ours].planners_s for name, cell in measured.items() if BY_NAME[name].ours in cell]
    return _PAGE.format(
        pictures=pictures,
        headline=HEADLINE,
        cells=ALL_CELLS,
        measured_on=measured_on,
        rounds=_rounds(measured),
        summary=_summary(measured),
        schemas=SCHEMAS,
        details="".join(_details(BY_NAME[name], cell) for name, cell in measured.items()),
        planners=f"{median(planners or [0.0]):.1f}",
        confluent=_share(CONFLUENT),
        kafka_python=_share(KAFKA_PYTHON),
        example=README_CELLS[0],
    )


def _rounds(measured: Costs) -> str:
    counts = {cost.runs for cell in measured.values() for cost in cell.values()}
    low, high = min(counts), max(counts)
    return (f"{low} rounds" if low > 1 else "one round") if low == high else f"{low} to {high} rounds"


def _share(contender: str) -> str:
    return {2: "half", 4: "a quarter", 8: "an eighth"}[FILES // FILES_OF[contender]]


def _summary(measured: Costs) -> str:
    head = ["values, codec, topic", "this sink, µs", "Spark's, µs", "ratio", "tuned, µs", "ratio", "over the floor"]
    head += ["rows/s", "Spark's rows/s"]
    lines = [_line(BY_NAME[name], cell) for name, cell in measured.items()]
    return _numbers(head, lines)


def _line(cell: CostCell, found: Mapping[str, Cost]) -> list[str]:
    over = over_floor(found, cell.ours)
    return [
        cell.title,
        _cpu(found.get(cell.ours)),
        _cpu(found.get(JVM)),
        _ratio(jvm_ratio(found, cell.ours)),
        _cpu(found.get(JVM_TUNED)),
        _ratio(jvm_ratio(found, cell.ours, JVM_TUNED)),
        "" if over is None else f"{over:+.0%}",
        _speed(found.get(cell.ours)),
        _speed(found.get(JVM)),
    ]


def _details(cell: CostCell, found: Mapping[str, Cost]) -> str:
    head = ["contender", "JVM", "Python", "both", "range", "rows/s", "rows a run"]
    lines = [
        [
            LABELS[name],
            _micros(cost.jvm),
            _micros(cost.python),
            _micros(cost.cpu),
            f"{_micros(cost.low)} to {_micros(cost.high)}",
            _speed(cost),
            f"{cost.rows:,}",
        ]
        for name, cost in found.items()
    ]
    return f"### {cell.title}\n\n{_numbers(head, lines)}\n"


def _numbers(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Returns a table whose columns are numbers, except for the first."""
    made = table(head, lines)
    return made.replace("| --- |" + " --- |" * (len(head) - 1), "| --- |" + " ---: |" * (len(head) - 1), 1)


def _cpu(cost: Cost | None) -> str:
    return "" if cost is None else _micros(cost.cpu)


def _micros(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


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
    """Writes the page and its pictures beside the CSV file of `folder`, and returns the names of all files."""
    measured_on, samples = kept(folder / FILE.name, CostSample)
    made = {"performance.md": markdown, **PICTURES}
    for name, text in made.items():
        (folder / name).write_text(text(measured_on, samples), encoding="utf-8")
    return [FILE.name, *made]
