"""`python -m benchmarks.throughput`: the picture of the README, this sink beside Spark's own, on a real Kafka.

It measures the CPU time of Spark: that of its JVM, planning included, and of the Python workers. The broker is left out. On a
shared machine CPU time repeats, and wall time does not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
from pyspark.sql import DataFrame

from benchmarks import contenders, pictures
from benchmarks.cells import CELLS, FIRST_WARM_UPS, FULL, WARM_UPS, Cell, take_turns
from benchmarks.contenders import Target
from benchmarks.curves import OUTPUT
from benchmarks.data import cached
from benchmarks.environment import Topics, broker, spark_session
from benchmarks.measure import timed
from benchmarks.pictures import THROUGHPUT, Throughput
from benchmarks.results import JVM, SINK, Run, Runs

MEASURED = ("100B-none-8", "100B-lz4-8", "1KB-none-8", "1KB-lz4-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what is asked for, unless only the picture is, and draws it. Exit code 1: a sink failed."""
    parser = argparse.ArgumentParser("python -m benchmarks.throughput", description="This sink beside Spark's own, drawn.")
    parser.add_argument("--only", nargs="+", default=list(MEASURED), choices=MEASURED, help="these cells")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each cell (5)")
    parser.add_argument("--draw", action="store_true", help="measure nothing; draw the picture from the CSV file")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the CSV file and the picture")
    asked = parser.parse_args(arguments)
    asked.output.mkdir(parents=True, exist_ok=True)
    complete = True
    if not asked.draw:
        machine = pictures.machine(("pyspark", "pyarrow", "numpy"))
        keep = partial(pictures.keep, asked.output / f"{THROUGHPUT}.csv", machine)
        complete = _measured([cell for cell in CELLS if cell.name in asked.only], asked.repeats, keep)
    pictures.draw_throughput(asked.output)
    return 0 if complete else 1


def _measured(cells: Sequence[Cell], repeats: int, keep: Callable[[list[Throughput]], None]) -> bool:
    """Measures the cells and keeps what is there after each. Returns whether no sink failed."""
    found: list[Throughput] = []
    complete = True
    warm_ups = FIRST_WARM_UPS
    plan = replace(FULL, repeats=repeats, least_repeats=repeats)
    with broker() as topics, spark_session() as spark:
        contenders.prepare(spark)
        for cell in cells:
            one = replace(cell, contenders=(JVM, SINK))
            frame = cached(spark, plan.rows(one), one.value_bytes)
            try:
                runs = take_turns(one, plan, warm_ups, partial(_run, cell=one, frame=frame, topics=topics))
            finally:
                frame.unpersist(blocking=True)
            found += _rows(one, runs)
            keep(found)
            complete = complete and all(runs.values())
            warm_ups = WARM_UPS
    return complete


def _rows(cell: Cell, runs: Runs) -> list[Throughput]:
    return [
        Throughput(cell.name, name, run.rows, round(run.seconds, 4), round(run.cpu_per_million, 4))
        for name, them in runs.items()
        for run in them
    ]


def _run(name: str, cell: Cell, frame: DataFrame, topics: Topics) -> Run:
    rows = frame.count()  # cached
    with topics.fresh(cell.partitions, rows * cell.record_bytes) as topic:
        target = Target(topics.kafka.bootstrap_servers, topic, cell.codec, cell.partitions)
        before = _jvm_cpu()
        run = timed(rows, lambda: contenders.CONTENDERS[name](frame, target))
        spent = _jvm_cpu() - before
        topics.check_count(topic, rows)
    return replace(run, cpu_s=run.cpu_s + spent)


def _jvm_cpu() -> float:
    """Returns the CPU seconds of Spark's JVM so far."""
    for process in psutil.Process(os.getpid()).children(recursive=True):
        if "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
            times = process.cpu_times()
            return float(times.user + times.system)
    raise RuntimeError("Spark's JVM is not among the children of this process")


if __name__ == "__main__":
    sys.exit(main())
