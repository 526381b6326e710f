"""Report of the results: a Markdown table, the goals and the raw figures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.figures import Goal, Spread, cpu_per_million, reached, rows_per_s, spread
from benchmarks.results import (
    AT_LEAST_ONCE,
    AVRO_APPEND,
    BYTES_APPEND,
    CEILING,
    COLD_LOG_READ,
    COMMIT,
    CONFLUENT,
    EMBEDDED,
    EXACTLY_ONCE,
    FASTAVRO,
    JVM,
    JVM_TUNED,
    KAFKA_PYTHON,
    LOG_READ,
    PYRUHVRO,
    PYRUHVRO_PREFIXED,
    SEND,
    SINK,
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
    AT_LEAST_ONCE: "this sink, at least once",
    EXACTLY_ONCE: "this sink, exactly once",
    COMMIT: "a commit, from begin to end",
    LOG_READ: "a commit's claim and read of its log, by a driver that has read it before",
    COLD_LOG_READ: "a new driver's first claim: connects, reads the whole log",
    FASTAVRO: "fastavro's schemaless_writer",
    PYRUHVRO: "pyruhvro, without the schema's id",
    PYRUHVRO_PREFIXED: "pyruhvro, then the schema's id",
    AVRO_APPEND: "an append of structs",
    BYTES_APPEND: "an append of the same bytes",
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
    """Writes report.md and results.json to `folder`. Returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(markdown(results))
    raw = {cell: {name: [asdict(run) for run in them] for name, them in runs.items()} for cell, runs in results.items()}
    (folder / "results.json").write_text(json.dumps(raw, indent=1) + "\n")
    return ["report.md", "results.json"]
