"""`python -m benchmarks` measures the parts of the sink, prints the tables and saves them in build/bench/.

`python -m benchmarks.cost` measures whole Spark jobs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import cells, commits, report, schemas, streaming
from benchmarks.cells import CELLS, FULL, QUICK, Brokers, Cell, Plan
from benchmarks.environment import CHECKOUT, Topics, broker, embedded_broker
from benchmarks.producers import processes
from benchmarks.report import LABELS
from benchmarks.results import Results, Runs

OUTPUT = CHECKOUT / "build" / "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmarks. The exit code is 1 if a contender failed, because its figures are missing."""
    asked = _parser().parse_args(arguments)
    chosen = [cell for cell in CELLS if not asked.only or cell.name in asked.only]
    results: dict[str, Runs] = {}
    try:
        with broker() as topics, embedded_broker() as embedded:
            brokers = Brokers(topics, Topics(embedded.kafka, embedded.folder))
            for cell, runs in _measure(chosen, _plan(asked), brokers):
                results[cell.name] = runs
    finally:  # keeps the results from before a failure or a Ctrl-C
        if results:
            _tell(results, asked.output)
    return 0 if all(them for runs in results.values() for them in runs.values()) else 1


def _measure(chosen: Sequence[Cell], plan: Plan, brokers: Brokers) -> Iterator[tuple[Cell, Runs]]:
    kinds = ("throughput", "streaming", "producer", "memory", "commits", "schemas")
    by_kind = {kind: [cell for cell in chosen if cell.kind == kind] for kind in kinds}
    if by_kind["throughput"]:
        yield from cells.throughput(by_kind["throughput"], plan, brokers)
    if by_kind["streaming"]:
        yield from streaming.streaming(by_kind["streaming"], plan, brokers.kafka)
    with processes() as warm:
        for cell in by_kind["producer"]:
            yield cell, cells.producer(cell, plan, brokers.kafka, warm)
    for cell in by_kind["memory"]:
        yield cell, cells.memory(cell, plan, brokers.kafka)
    for cell in by_kind["commits"]:
        yield cell, commits.commits(cell, plan, brokers.kafka)
    if by_kind["schemas"]:
        yield from schemas.schemas(by_kind["schemas"], plan, brokers.embedded)


def _tell(results: Results, folder: Path) -> None:
    kept = report.write(results, folder)
    print(report.markdown(results))
    print(f"Kept in {folder}: {', '.join(kept)}", file=sys.stderr)


def _plan(asked: argparse.Namespace) -> Plan:
    plan = QUICK if asked.quick else FULL
    if asked.repeats:  # exactly this number, however long it takes
        plan = replace(plan, repeats=asked.repeats, least_repeats=asked.repeats)
    return replace(plan, only=tuple(asked.contenders), rows_asked=asked.rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description="The parts of this sink, beside other clients.")
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument(
        "--quick",
        action="store_true",
        default=quick,
        help="Use fewer rows and repeats; takes about 5 minutes. QUICK=1 does the same.",
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CELL", choices=[cell.name for cell in CELLS], help="Measure these cells only."
    )
    parser.add_argument("--contenders", nargs="+", default=[], choices=list(LABELS), help="Measure these contenders only.")
    parser.add_argument("--repeats", type=int, help="Number of rounds per cell. Defaults to 7, and to 3 with --quick.")
    parser.add_argument("--rows", type=int, help="Number of rows per run. Defaults to the cell's own number.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="Folder for the table, the plot and the raw figures.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
