"""Report of the results: a Markdown table, the goals, a plot and the raw figures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.figures import Goal, Spread, cpu_per_million, reached, rows_per_s, spread
from benchmarks.results import (
    AT_LEAST_ONCE,
    AVRO_APPEND,
    BUSY_CONNECTION,
    BYTES_APPEND,
    CEILING,
    COLD_LOG_READ,
    COMMIT,
    CONFLUENT,
    EMBEDDED,
    EXACTLY_ONCE,
    FASTAVRO,
    JVM,
    JVM_TLS,
    JVM_TUNED,
    KAFKA_PYTHON,
    LOG_READ,
    PYRUHVRO,
    PYRUHVRO_PREFIXED,
    SEND,
    SINK,
    SINK_SCRAM,
    SINK_TLS,
    START,
    START_SASL_SSL,
    Results,
    Run,
)

LABELS = {
    SINK: "this sink",
    JVM: "Spark's JVM sink, its defaults",
    JVM_TUNED: "Spark's JVM sink, our settings",
    CONFLUENT: "confluent-kafka per row",
    CEILING: "Arrow into Python, dropped",
    SEND: "this producer's send()",
    KAFKA_PYTHON: "kafka-python's send()",
    EMBEDDED: "this sink, embedded broker",
    BUSY_CONNECTION: "a busy connection, requests",
    AT_LEAST_ONCE: "this sink, at least once",
    EXACTLY_ONCE: "this sink, exactly once",
    COMMIT: "a commit, from begin to end",
    LOG_READ: "a commit's claim and read of its log, by a driver that has read it before",
    COLD_LOG_READ: "a new driver's first claim: connects, reads the whole log",
    SINK_TLS: "this sink, TLS",
    SINK_SCRAM: "this sink, SCRAM",
    JVM_TLS: "Spark's JVM sink, TLS",
    START: "from start to first ack, plain text",
    START_SASL_SSL: "from start to first ack, TLS and SCRAM",
    FASTAVRO: "fastavro's schemaless_writer",
    PYRUHVRO: "pyruhvro, without the schema's id",
    PYRUHVRO_PREFIXED: "pyruhvro, then the schema's id",
    AVRO_APPEND: "an append of structs",
    BYTES_APPEND: "an append of the same bytes",
}
# Kinds of cells whose rows cannot be compared with those of other cells.
NOT_DRAWN = ("memory", "connections", "small_batches", "commit_phase", "micro_batches", "first_ack", "new_process", "avro")
COLORS = {
    SINK: "#d55e00",
    JVM: "#0072b2",
    JVM_TUNED: "#56b4e9",
    CONFLUENT: "#009e73",
    CEILING: "#bbbbbb",
    SEND: "#e69f00",
    KAFKA_PYTHON: "#cc79a7",
    EMBEDDED: "#f0e442",
    BUSY_CONNECTION: "#000000",
    AT_LEAST_ONCE: "#d55e00",
    EXACTLY_ONCE: "#882255",
    COMMIT: "#000000",
    LOG_READ: "#000000",
    COLD_LOG_READ: "#000000",
    SINK_TLS: "#a04000",
    SINK_SCRAM: "#e59866",
    JVM_TLS: "#003f6b",
    START: "#000000",
    START_SASL_SSL: "#000000",
    FASTAVRO: "#009e73",
    PYRUHVRO: "#0072b2",
    PYRUHVRO_PREFIXED: "#56b4e9",
    AVRO_APPEND: "#d55e00",
    BYTES_APPEND: "#bbbbbb",
}


def markdown(results: Results) -> str:
    """Returns the whole report as text."""
    parts = ["# Benchmark", _machine(), "## Measured", _measured(results), "## Figures to reach", goals_table(reached(results))]
    return "\n\n".join(parts) + "\n"


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy", "confluent-kafka"))
    return (
        f"Python {platform.python_version()}, {packages}; Spark's JVM sink 4.0.0; Kafka 4.1.0; {os.cpu_count()} cores.\n"
        "Medians with least and largest value; CPU of Python alone, the JVM's is not in it."
    )


def _measured(results: Results) -> str:
    lines = [
        "| cell | contender | runs | rows/s | CPU s per million rows | peak RSS of a worker |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for cell, runs in results.items():
        lines += [_line(cell, contender, them) for contender, them in runs.items()]
    return "\n".join(lines)


def _line(cell: str, contender: str, runs: Sequence[Run]) -> str:
    if not runs:
        return f"| {cell} | {LABELS[contender]} | 0 | failed | | |"
    peak = max(run.peak_rss for run in runs)
    speeds, cpu = spread(rows_per_s(runs)), spread(cpu_per_million(runs))
    figures = (
        str(len(runs)),
        _of(speeds, ",.0f" if speeds.middle >= 1000 else ",.2f"),
        _of(cpu, ".2f" if cpu.middle >= 1 or not cpu.middle else ".3f"),
        f"{peak / 2**20:,.0f} MB" if peak else "",
    )
    return f"| {cell} | {LABELS[contender]} | {' | '.join(figures)} |"


_OF_IDS = (
    "Ids are bounded by live workers x slots; those of workers that are gone are kept by the brokers until they expire"
    " (`transactional.id.expiration.ms`, 7 days)."
)


def goals_table(goals: Sequence[tuple[Goal, Spread | None]]) -> str:
    """Returns the goals with what was measured."""
    lines = ["| figure | wanted | measured | |", "| --- | ---: | ---: | --- |"]
    lines += [_goal(goal, figure) for goal, figure in goals]
    if any(": ids" in goal.text for goal, _ in goals):
        lines += ["", _OF_IDS]
    return "\n".join(lines)


def _goal(goal: Goal, figure: Spread | None) -> str:
    bound = "-" if goal.bound is None else f"{'≥' if goal.at_least else '≤'} {goal.bound:g}"
    if figure is None:
        return f"| {goal.text} | {bound} | | **not measured** |"
    verdict = "no goal" if goal.bound is None else "met" if goal.met(figure) else "**not met**"
    return f"| {goal.text} | {bound} | {_of(figure, '.2f')} | {verdict} |"


def _of(figure: Spread, how: str) -> str:
    return f"{figure.middle:{how}} ({figure.low:{how}} - {figure.high:{how}})"


def write(results: Results, folder: Path) -> list[str]:
    """Writes report.md, results.json and, if a throughput was measured, throughput.png to `folder`. Returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(markdown(results))
    raw = {cell: {name: [asdict(run) for run in them] for name, them in runs.items()} for cell, runs in results.items()}
    (folder / "results.json").write_text(json.dumps(raw, indent=1) + "\n")
    drawn = {cell: runs for cell, runs in results.items() if not cell.startswith(NOT_DRAWN)}
    if not drawn:
        return ["report.md", "results.json"]
    _plot(drawn, folder / "throughput.png")
    return ["report.md", "results.json", "throughput.png"]


def _plot(results: Results, path: Path) -> None:
    """Draws bars of the median rows/s, one group per cell, with whiskers from the smallest to the largest."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5 + 1.1 * len(results), 5), layout="constrained")
    width = 0.8 / len(LABELS)
    for place, (contender, label) in enumerate(LABELS.items()):
        cells = [number for number, runs in enumerate(results.values()) if runs.get(contender)]
        if not cells:
            continue  # an empty bar chart would add a colour to the legend
        values = [[value / 1e6 for value in rows_per_s(runs[contender])] for runs in results.values() if runs.get(contender)]
        middles = [median(them) for them in values]
        below = [middle - min(them) for middle, them in zip(middles, values, strict=True)]
        above = [max(them) - middle for middle, them in zip(middles, values, strict=True)]
        places = [cell + (place - (len(LABELS) - 1) / 2) * width for cell in cells]
        axes.bar(places, middles, width, yerr=[below, above], color=COLORS[contender], label=label, error_kw={"linewidth": 0.8})
    axes.set_xticks(range(len(results)), list(results), rotation=20)
    axes.set_ylabel("million rows per second")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
