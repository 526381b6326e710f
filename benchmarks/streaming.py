"""Streaming queries: exactly-once compared with at-least-once, for micro-batches of many rows, of few rows and of many tasks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_kafka_sink as sks
from benchmarks.cells import WARM_UPS, Cell, Plan, take_turns
from benchmarks.commits import ids_left
from benchmarks.contenders import prepare
from benchmarks.data import records
from benchmarks.environment import Topics, spark_session
from benchmarks.measure import task_workers, timed
from benchmarks.results import EXACTLY_ONCE, Run, Runs
from tests.kafka.cluster import data_folder

MICRO_BATCH_ROWS = 1_000_000
SMALL_ROWS = 80  # 10 per task; with fewer, some partitions would have no row of a task, and so no marker
TASKS, MANY_TASKS = 8, 200


def streaming(cells: Iterable[Cell], plan: Plan, topics: Topics) -> Iterator[tuple[Cell, Runs]]:
    """Measures cells on demand, in one Spark session."""
    with spark_session() as spark:
        prepare(spark)
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        for cell in cells:
            yield cell, _CELLS[cell.name](spark, cell, plan, topics)


@dataclass(frozen=True, slots=True)
class Input:
    """A folder of micro-batches. Each is a folder with one file per task, which links to a file in `rows`."""

    folder: Path

    @property
    def rows(self) -> Path:
        return self.folder / "rows"

    @property
    def batches(self) -> Path:
        return self.folder / "batches"

    def add(self, number: int) -> None:
        """Adds a micro-batch atomically, so that a running query cannot read a part of it."""
        made = self.folder / "made"
        made.mkdir()
        for index, file in enumerate(sorted(self.rows.glob("*.parquet"))):
            os.link(file, made / f"{index:03}.parquet")
        self.batches.mkdir(exist_ok=True)
        made.rename(self.batches / f"{number:05}")


@dataclass(frozen=True, slots=True)
class Source:
    """Micro-batches with the same rows and number of tasks."""

    spark: SparkSession
    input: Input
    tasks: int

    def start(self, options: Mapping[str, str], *, to_the_end: bool) -> StreamingQuery:
        """Runs the query from its first micro-batch on. to_the_end: it ends after the last micro-batch."""
        schema = self.spark.read.parquet(str(self.input.rows)).schema
        frame = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", self.tasks)
        writer = frame.parquet(str(self.input.batches / "*")).writeStream.format("kafka_sink").options(**options)
        writer = writer.option("checkpointLocation", str(self.input.folder / f"checkpoint-{options['topic']}"))
        return (writer.trigger(availableNow=True) if to_the_end else writer).start()


def _options(topics: Topics, topic: str, cell: Cell, guarantee: str) -> dict[str, str]:
    options = {
        "topic": topic,
        "kafka.bootstrap.servers": topics.kafka.bootstrap_servers,
        "kafka.compression.type": cell.codec,
        "delivery.guarantee": guarantee,
    }
    return options | ({"transactional.id.prefix": topic} if guarantee == EXACTLY_ONCE else {})


@contextmanager
def source_of(spark: SparkSession, tasks: int, rows: int, value_bytes: int) -> Iterator[Source]:
    """Prepares micro-batches of `rows` rows."""
    folder = data_folder()
    spark.conf.set("spark.sql.files.minPartitionNum", str(tasks))  # otherwise small files share a task
    try:
        frame = records(spark, rows, value_bytes).repartition(tasks)
        frame.write.option("compression", "none").parquet(str(folder / "rows"))
        yield Source(spark, Input(folder), tasks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _turns(spark: SparkSession, cell: Cell, plan: Plan, topics: Topics, batch_rows: int, batches: int) -> Runs:
    """Runs one query per turn. The first micro-batch does not count, because Spark starts processes with it."""
    with source_of(spark, TASKS, batch_rows, cell.value_bytes) as source:
        for number in range(batches + 1):
            source.input.add(number)
        return take_turns(cell, plan, WARM_UPS, lambda name: _query(source, cell, topics, name, batch_rows * (batches + 1)))


def _query(source: Source, cell: Cell, topics: Topics, guarantee: str, rows: int) -> Run:
    """Returns a run whose rows are micro-batches. rows: rows of the query. seconds: the median times their number."""
    with topics.fresh(cell.partitions, rows * cell.record_bytes) as topic:
        query = None

        def run() -> None:
            nonlocal query
            query = source.start(_options(topics, topic, cell, guarantee), to_the_end=True)
            query.awaitTermination()

        cpu_s = timed(rows, run).cpu_s
        assert query is not None
        taken = milliseconds(query)
        is_exact = guarantee == EXACTLY_ONCE
        topics.check_count(topic, rows, markers=(len(taken) + 1) * TASKS * cell.partitions if is_exact else 0)
        ids = ids_left(topics.kafka.bootstrap_servers, topic, str(query.id)) if is_exact else 0
        count = len(taken)
        return Run(
            count, median(taken) / 1000 * count, cpu_s * count / (count + 1), ids=ids, most_ids=len(task_workers()) * TASKS
        )


def milliseconds(query: StreamingQuery) -> list[int]:
    """Returns the figures of each micro-batch but the first."""
    return [progress.durationMs["triggerExecution"] for progress in query.recentProgress if progress.numInputRows][1:]


def _exactly_once(spark: SparkSession, cell: Cell, plan: Plan, topics: Topics) -> Runs:
    runs = _turns(spark, cell, plan, topics, MICRO_BATCH_ROWS, plan.rows(cell) // MICRO_BATCH_ROWS)
    return {name: [replace(run, rows=run.rows * MICRO_BATCH_ROWS) for run in them] for name, them in runs.items()}


def _small_batches(spark: SparkSession, cell: Cell, plan: Plan, topics: Topics) -> Runs:
    return _turns(spark, cell, plan, topics, SMALL_ROWS, plan.rows(cell))


def _commit_phase(spark: SparkSession, cell: Cell, plan: Plan, topics: Topics) -> Runs:
    with source_of(spark, MANY_TASKS, MANY_TASKS * 10, cell.value_bytes) as source:
        found: list[Run] = []

        def run(_: str) -> Run:
            found.extend(_commits(source, cell, topics, plan.rows(cell)))
            return found[-1]

        runs = take_turns(cell, replace(plan, repeats=1, least_repeats=1), 0, run)
    return {name: found if them else [] for name, them in runs.items()}


def _commits(source: Source, cell: Cell, topics: Topics, batches: int) -> Sequence[Run]:
    """Returns the driver's metrics of each micro-batch's commit. The first does not count, because its process must connect."""
    metrics = sks.register(source.spark)
    source.input.add(0)
    taken = []
    with topics.fresh(cell.partitions, 2**26) as topic:
        query = source.start(_options(topics, topic, cell, EXACTLY_ONCE), to_the_end=False)
        try:
            query.processAllAvailable()
            for number in range(1, batches + 1):
                before = metrics.committed.commit_ms if metrics.committed else 0
                source.input.add(number)
                query.processAllAvailable()
                assert metrics.committed is not None
                taken.append((metrics.committed.commit_ms - before) / 1000)
        finally:
            query.stop()
    return [Run(1, seconds, 0.0) for seconds in taken]


_CELLS: Mapping[str, Callable[[SparkSession, Cell, Plan, Topics], Runs]] = {
    "exactly_once": _exactly_once,
    "small_batches": _small_batches,
    "commit_phase": _commit_phase,
}
