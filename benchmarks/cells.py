"""Cells of the parts of the sink, and how each is measured. In each round, every contender runs once on the same broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from benchmarks import contenders
from benchmarks.contenders import Target
from benchmarks.data import KEY_BYTES, cached, records, repeated
from benchmarks.environment import SHORT_RETENTION, Topics, spark_session
from benchmarks.measure import MemorySampler, timed
from benchmarks.producers import ProducerProcesses
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
    KAFKA_PYTHON,
    LOG_READ,
    PYRUHVRO,
    PYRUHVRO_PREFIXED,
    SEND,
    SINK,
    Run,
    Runs,
)

# Spark's compiler needs 3 to 4 runs of a contender until its figures are stable. For later cells, only the codec is cold.
FIRST_WARM_UPS, WARM_UPS = 4, 1
RECORD_OVERHEAD = 16  # bytes per record beside its key and value, including batch headers


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table. `kind`: throughput, producer, memory, streaming, commits or schemas.

    rows: the number of micro-batches or starts in cells that measure those.
    """

    kind: str
    name: str
    value_bytes: int
    codec: str
    partitions: int
    rows: int
    quick_rows: int
    contenders: tuple[str, ...]

    @property
    def record_bytes(self) -> int:
        return self.value_bytes + KEY_BYTES + RECORD_OVERHEAD


@dataclass(frozen=True, slots=True)
class Plan:
    """Amount of work to measure. A cell ends early after `cell_seconds`, but not before `least_repeats` rounds."""

    quick: bool
    repeats: int
    least_repeats: int
    cell_seconds: float
    only: tuple[str, ...] = ()
    rows_asked: int | None = None

    def rows(self, cell: Cell) -> int:
        return self.rows_asked or (cell.quick_rows if self.quick else cell.rows)

    def takes_part(self, name: str) -> bool:
        return not self.only or name in self.only


FULL = Plan(quick=False, repeats=7, least_repeats=3, cell_seconds=270)
QUICK = Plan(quick=True, repeats=3, least_repeats=2, cell_seconds=40)

CELLS: Sequence[Cell] = (
    Cell("throughput", "embedded", 100, "lz4", 8, 5_000_000, 1_000_000, (SINK, EMBEDDED)),
    *(Cell("producer", f"producer-{count}", 100, "none", count, 5_000_000, 1_000_000, (SINK, CONFLUENT)) for count in (8, 1000)),
    Cell("producer", "send-8", 100, "none", 8, 500_000, 100_000, (SEND, CONFLUENT, KAFKA_PYTHON)),
    Cell("memory", "memory-100B", 100, "none", 8, 50_000_000, 5_000_000, (CEILING, SINK)),
    Cell("memory", "memory-100KB", 100 * 1024, "none", 8, 25_000, 5_000, (CEILING, SINK)),
    Cell("streaming", "exactly_once", 100, "lz4", 8, 5_000_000, 2_000_000, (AT_LEAST_ONCE, EXACTLY_ONCE)),
    Cell("streaming", "small_batches", 100, "lz4", 8, 100, 30, (AT_LEAST_ONCE, EXACTLY_ONCE)),
    Cell("streaming", "commit_phase", 100, "lz4", 8, 3, 1, (COMMIT,)),
    Cell("commits", "micro_batches", 100, "lz4", 8, 10_000, 500, (COMMIT, LOG_READ, COLD_LOG_READ)),
    Cell("schemas", "avro-5", 40, "none", 0, 1_000_000, 200_000, (SINK, FASTAVRO, PYRUHVRO, PYRUHVRO_PREFIXED)),
    Cell("schemas", "avro-20", 120, "none", 0, 1_000_000, 200_000, (SINK, FASTAVRO, PYRUHVRO, PYRUHVRO_PREFIXED)),
    Cell("schemas", "avro-append", 45, "none", 8, 1_000_000, 200_000, (AVRO_APPEND, BYTES_APPEND)),
)

RunOnce = Callable[[str], Run]


class Turns(Protocol):
    """A cell of any table."""

    @property
    def name(self) -> str: ...
    @property
    def contenders(self) -> tuple[str, ...]: ...


def take_turns(cell: Turns, plan: Plan, warm_ups: int, run: RunOnce) -> Runs:
    """Runs `warm_ups` rounds that are discarded, and then the plan's rounds. Every other round runs in reverse order.

    A contender that fails has no runs in this cell. The others continue.
    """
    names = [name for name in cell.contenders if plan.takes_part(name)]
    runs: dict[str, list[Run]] = {name: [] for name in names}
    failed: set[str] = set()
    deadline = time.monotonic() + plan.cell_seconds
    for number in range(warm_ups + plan.repeats):
        measured = number - warm_ups
        if measured >= plan.least_repeats and time.monotonic() > deadline:
            break
        for name in names if number % 2 == 0 else reversed(names):
            if name in failed:
                continue
            try:
                one = run(name)
            except Exception as error:
                print(f"{cell.name}: {name} failed: {error}", file=sys.stderr, flush=True)
                failed.add(name)
                continue
            _say(cell, "warm-up" if measured < 0 else f"{measured + 1}/{plan.repeats}", name, one)
            if measured >= 0:
                runs[name].append(one)
    return {name: [] if name in failed else them for name, them in runs.items()}


def _say(cell: Turns, turn: str, name: str, run: Run) -> None:
    many = run.rows_per_s >= 1000
    cpu = f"{run.cpu_per_million:7.2f} us CPU/row in Python" + (f", {run.jvm_per_million:.2f} in the JVM" if run.jvm_s else "")
    speed = f"{run.rows_per_s:12,.0f} rows/s {cpu}" if many else f"{run.ms_each:12,.1f} ms each"
    line = f"{cell.name:15} {turn:8} {name:10} {speed}"
    print(line + (f" {run.peak_rss / 2**20:6,.0f} MB" if run.peak_rss else ""), file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Brokers:
    """Real Kafka and the embedded broker."""

    kafka: Topics
    embedded: Topics

    def of(self, contender: str) -> Topics:
        return self.embedded if contender == EMBEDDED else self.kafka


def throughput(cells: Iterable[Cell], plan: Plan, brokers: Brokers) -> Iterator[tuple[Cell, Runs]]:
    """Measures cells on demand, in one Spark session."""
    warm_ups = FIRST_WARM_UPS
    with spark_session() as spark:
        contenders.prepare(spark)
        for cell in cells:
            rows = plan.rows(cell)
            frame = cached(spark, rows, cell.value_bytes)
            try:
                yield cell, take_turns(cell, plan, warm_ups, _spark_run(cell, frame, rows, brokers))
            finally:
                frame.unpersist(blocking=True)
            warm_ups = WARM_UPS


def _spark_run(cell: Cell, frame: DataFrame, rows: int, brokers: Brokers) -> RunOnce:
    def run(name: str) -> Run:
        topics = brokers.of(name)
        with topics.fresh(cell.partitions, rows * cell.record_bytes) as topic:
            target = Target(topics.kafka.bootstrap_servers, topic, cell.codec, cell.partitions)
            one = timed(rows, lambda: contenders.CONTENDERS[name](frame, target))
            topics.check_count(topic, rows)
        return one

    return run


def producer(cell: Cell, plan: Plan, topics: Topics, processes: ProducerProcesses) -> Runs:
    """Measures the producers without Spark."""

    def run(name: str) -> Run:
        with topics.fresh(cell.partitions, plan.rows(cell) * cell.record_bytes) as topic:
            one = processes.run(name, Target(topics.kafka.bootstrap_servers, topic, cell.codec, cell.partitions), plan.rows(cell))
            topics.check_count(topic, one.rows)
        return one

    return take_turns(cell, plan, WARM_UPS, run)


def memory(cell: Cell, plan: Plan, topics: Topics) -> Runs:
    """Measures each contender once, in new Python workers: each contender has its own Spark session."""
    once = replace(plan, repeats=1, least_repeats=1)
    return take_turns(cell, once, 0, lambda name: _memory_run(name, cell, once.rows(cell), topics))


def _memory_run(name: str, cell: Cell, rows: int, topics: Topics) -> Run:
    with spark_session() as spark, topics.fresh(cell.partitions, 2**30, SHORT_RETENTION) as topic:
        contenders.prepare(spark)
        frame = _memory_frame(spark, rows, cell.value_bytes)
        target = Target(topics.kafka.bootstrap_servers, topic, cell.codec, cell.partitions)
        with MemorySampler() as memory:
            one = timed(rows, lambda: contenders.CONTENDERS[name](frame, target))
        if name != CEILING:
            topics.check_count(topic, rows)
    return Run(one.rows, one.seconds, one.cpu_s, memory.peak)


def _memory_frame(spark: SparkSession, rows: int, value_bytes: int) -> DataFrame:
    """Returns a cached tenth of the rows, repeated ten times. Large rows are generated on the fly, which costs less."""
    if value_bytes > 10_000:
        return records(spark, rows, value_bytes)
    return repeated(cached(spark, rows // 10, value_bytes), 10)
