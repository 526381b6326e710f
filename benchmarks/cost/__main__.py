"""`python -m benchmarks.cost` measures what a row costs the executor, beside rows per second, and keeps it as CSV.

All contenders of a cell take turns in one Spark application, so warm-up and noise hit them alike. CPU time is that of Spark's JVM
and of its Python workers. The broker runs in a separate process and is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import contenders, pictures
from benchmarks.cells import FIRST_WARM_UPS, WARM_UPS, Plan, take_turns
from benchmarks.contenders import Target
from benchmarks.cost.cells import CELLS, FILES, FILES_OF, FULL, QUICK, CostCell, CostPlan, Payload
from benchmarks.cost.contenders import CONTENDERS, LIMITS
from benchmarks.cost.costs import CostSample, samples_of
from benchmarks.cost.page import FILE, markdown, write_drafts
from benchmarks.cost.processor import profile_table, profiled
from benchmarks.cost.rows import write_rows
from benchmarks.environment import CHECKOUT, Topics, broker, spark_session
from benchmarks.figures import reached
from benchmarks.measure import task_workers, timed
from benchmarks.pictures import keep
from benchmarks.report import goals_table
from benchmarks.results import CEILING, Run, Runs
from docs.__main__ import main as make_pages
from tests.kafka.cluster import data_folder
from tests.kafka.guardian import Guardian

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUT = CHECKOUT / "build" / "bench"
PACKAGES = ("pyspark", "pyarrow", "numpy", "confluent-kafka", "kafka-python")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and keeps the cells that are asked for. Exit code 1: a contender failed, so the docs stay as they are."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    plan, cells = planned(asked)
    if asked.keep and (len(cells) < len(CELLS) or asked.contenders):
        parser.error("--keep needs all cells and contenders: leave --quick, QUICK, --only and --contenders out")
    if asked.profile:
        return _profile(cells, plan)
    asked.output.mkdir(parents=True, exist_ok=True)
    measured_on = pictures.machine(PACKAGES)
    found: list[CostSample] = []
    results: dict[str, Runs] = {}
    complete = True
    for cell, runs in _measured(cells, plan, asked.contenders):
        results[cell.name] = runs
        found += samples_of(cell.name, runs)
        complete = complete and all(runs.values())
        if found:  # kept after each cell, so that a Ctrl-C loses one cell
            keep(asked.output / FILE.name, measured_on, found)
    if not found:
        return 1
    print(markdown(measured_on, found))
    print(goals_table(reached(results)))
    kept = write_drafts(asked.output)
    print(f"Kept in {asked.output}: {', '.join(kept)}", file=sys.stderr)
    if not complete:
        print("A contender failed, so its figures are missing; the reason is above", file=sys.stderr)
        return 1
    if asked.keep:
        shutil.copyfile(asked.output / FILE.name, FILE)
        make_pages([])
    return 0


def planned(asked: argparse.Namespace) -> tuple[CostPlan, list[CostCell]]:
    """Returns how much is measured, and which cells."""
    plan = QUICK if asked.quick else FULL
    if asked.repeats:  # exactly this number, however long it takes
        plan = replace(plan, repeats=asked.repeats, least_repeats=asked.repeats)
    if asked.share:
        plan = replace(plan, share=asked.share)
    if asked.only:
        return plan, [cell for cell in CELLS if cell.name in asked.only]
    return plan, [cell for cell in CELLS if cell.quick or not asked.quick]


def _profile(cells: Sequence[CostCell], plan: CostPlan) -> int:
    """Prints where the time of this sink's workers goes, beside that of workers that drop their input."""
    with broker() as topics, spark_session() as spark, _folder() as folder:
        contenders.prepare(spark)
        rows = _Rows(spark, plan, folder)
        for cell in cells:
            found = {}
            for name in (cell.ours, CEILING):
                run = partial(_run, name, cell, rows.frames(cell.payload), topics)
                for _ in range(FIRST_WARM_UPS):
                    run()
                workers = {worker.pid for worker in task_workers()}
                found[name] = profiled(run, workers)
            print(f"\n{cell.title}\n\n{profile_table(found[cell.ours], found[CEILING])}", flush=True)
    return 0


def _measured(cells: Sequence[CostCell], plan: CostPlan, only: Sequence[str]) -> Iterator[tuple[CostCell, Runs]]:
    started = time.monotonic()
    with broker() as topics, spark_session() as spark:
        contenders.prepare(spark)
        with _folder() as folder:
            rows = _Rows(spark, plan, folder)
            for number, cell in enumerate(cells):
                gone, left = time.monotonic() - started, len(cells) - number
                seconds = plan.seconds_of_next(gone, left)
                print(progress(number, cells, gone, plan.seconds), file=sys.stderr, flush=True)
                frames = rows.frames(cell.payload)
                turns = Plan(
                    quick=False,
                    repeats=plan.repeats,
                    least_repeats=plan.least_repeats,
                    cell_seconds=seconds,
                    only=tuple(only),
                )
                warm_ups = FIRST_WARM_UPS if number == 0 else WARM_UPS
                yield cell, take_turns(cell, turns, warm_ups, partial(_run, cell=cell, frames=frames, topics=topics))


def progress(number: int, cells: Sequence[CostCell], gone_s: float, seconds: float) -> str:
    """Returns the line that introduces a cell. number: of the cells before it."""
    left = max(0.0, seconds - gone_s)
    if number:  # a cell takes as long as those before it, unless there is less time
        left = min(left, gone_s / number * (len(cells) - number))
    return f"[{number + 1}/{len(cells)}] {cells[number].title}: {gone_s / 60:.1f} min gone, at most {left / 60:.0f} min left"


def _run(name: str, cell: CostCell, frames: Callable[[str], tuple[DataFrame, int]], topics: Topics) -> Run:
    frame, rows = frames(name)
    write = CONTENDERS[name]
    if name in LIMITS:
        return timed(rows, lambda: write(frame, Target("", "", cell.codec, cell.partitions)))
    with topics.fresh(cell.partitions, rows * cell.payload.record_bytes) as topic:
        target = Target(topics.kafka.bootstrap_servers, topic, cell.codec, cell.partitions)
        one = timed(rows, lambda: write(frame, target))
        markers = FILES * cell.partitions if cell.exactly_once else 0
        topics.check_count(topic, rows, markers)
    return one


class _Rows:
    """The Parquet files of one payload at a time."""

    def __init__(self, spark: SparkSession, plan: CostPlan, folder: Path) -> None:
        self._spark = spark
        self._plan = plan
        self._folder = folder
        self._payload: Payload | None = None
        self._paths: Sequence[Path] = ()

    def frames(self, payload: Payload) -> Callable[[str], tuple[DataFrame, int]]:
        """Writes the files if they are not there. Returns a function that gives a contender's DataFrame and number of rows."""
        if payload != self._payload:
            for path in self._paths:
                path.unlink()
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            self._paths = write_rows(payload, self._plan.rows(payload), folder)
            self._payload = payload
        return self._frame

    def _frame(self, contender: str) -> tuple[DataFrame, int]:
        assert self._payload is not None
        count = FILES_OF.get(contender, FILES)
        frame = self._spark.read.parquet(*(str(path) for path in self._paths[:count]))
        return frame, self._plan.rows(self._payload) // FILES * count


@contextmanager
def _folder() -> Iterator[Path]:
    """Yields a folder for the files, in memory if there is space. It is removed at the end, also if this process is killed."""
    folder, guardian = data_folder(), Guardian()
    guardian.watch_folder(folder)
    try:
        yield folder
    finally:
        guardian.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks.cost", description="What a row costs, in this sink and its peers.")
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument(
        "--quick",
        action="store_true",
        default=quick,
        help="Measure some cells with fewer rows; takes at most 10 minutes instead of 45. QUICK=1 does the same.",
    )
    names = [cell.name for cell in CELLS]
    parser.add_argument("--only", nargs="+", default=[], metavar="CELL", choices=names, help="Measure these cells only.")
    parser.add_argument("--contenders", nargs="+", default=[], choices=list(CONTENDERS), help="Measure these contenders only.")
    parser.add_argument("--repeats", type=int, help="Number of rounds per cell. Defaults to at most 7, and 3 with --quick.")
    parser.add_argument("--share", type=float, help="Share of the rows to write. Defaults to 1, and to 1/6 with --quick.")
    parser.add_argument("--profile", action="store_true", help="Sample this sink's workers with Linux perf (as root) instead.")
    parser.add_argument("--keep", action="store_true", help="Make docs/performance.md and its pictures from the figures.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="Folder of the CSV file, the table and the pictures.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
