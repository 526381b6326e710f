"""Medians, spreads and ratios of measurements, and the goals that they meet. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

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
    Runs,
)

# Over the memory of a worker that drops its input: buffer.memory, 32 MB by default, and 100 MB.
MEMORY_MB = 32 + 100

# The active segment, one that waits for the cleaner (every 15 s), and a cleaned one: 1 MB each, and one spare.
COMMIT_LOG_MB = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of some values."""

    middle: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Returns the ratio of the medians, with the smallest and largest ratio within a round.

    The runs of a round follow each other at once, so a slow minute of the machine slows both.
    """
    rounds = [a / b for a, b in zip(above, below, strict=True)]
    return Spread(median(above) / median(below), min(rounds), max(rounds))


def rows_per_s(runs: Sequence[Run]) -> list[float]:
    return [run.rows_per_s for run in runs]


def cpu_per_million(runs: Sequence[Run]) -> list[float]:
    return [run.cpu_per_million for run in runs]


def best_jvm(runs: Runs) -> Sequence[Run]:
    """Returns the runs of Spark's own sink with its faster settings."""
    tuned = runs.get(JVM_TUNED, runs[JVM])
    return max(runs[JVM], tuned, key=lambda them: median(rows_per_s(them)))


class NotMeasuredError(Exception):
    """A figure lacks a measurement, although its cell was requested."""


# Computes a figure of results. Raises NotMeasuredError, or KeyError for a cell that was not requested.
Figure = Callable[[Results], Spread]


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal for a figure: at least `bound`, or at most. None: the figure is only shown."""

    text: str
    figure: Figure
    bound: float | None
    at_least: bool = True

    def met(self, figure: Spread) -> bool:
        if self.bound is None:
            return True
        return figure.middle >= self.bound if self.at_least else figure.middle <= self.bound


def _faster_than_jvm(cell: str) -> Figure:
    return lambda results: ratio(rows_per_s(results[cell][SINK]), rows_per_s(best_jvm(results[cell])))


def _faster_than(cell: str, other: str, ours: str = SINK) -> Figure:
    return lambda results: ratio(rows_per_s(results[cell][ours]), rows_per_s(results[cell][other]))


def _ms_more(results: Results) -> Spread:
    """Returns the milliseconds that exactly-once adds to a micro-batch of few rows."""
    runs = results["small_batches"]
    return spread([ours.ms_each - other.ms_each for ours, other in zip(runs[EXACTLY_ONCE], runs[AT_LEAST_ONCE], strict=True)])


def _commit_ms(results: Results) -> Spread:
    return spread([run.ms_each for run in results["commit_phase"][COMMIT]])


def _log_read_ms(share: float) -> Figure:
    """Makes a figure of the commit log's read times: the given quantile over the last micro-batches."""

    def figure(results: Results) -> Spread:
        taken = sorted(run.ms_each for run in results["micro_batches"][LOG_READ])
        return Spread(taken[min(len(taken) - 1, int(len(taken) * share))], taken[0], taken[-1])

    return figure


def _cold_read_ms(results: Results) -> Spread:
    return spread([run.ms_each for run in results["micro_batches"][COLD_LOG_READ]])


def _ids_too_many(cell: str, contender: str) -> Figure:
    def figure(results: Results) -> Spread:
        runs = results[cell][contender]
        if not all(run.ids for run in runs):  # every query leaves some ids, so none means a wrong search
            raise NotMeasuredError(f"{cell}: no transactional ids were found")
        return spread([run.ids - run.most_ids for run in runs])

    return figure


def _commit_log_mb(results: Results) -> Spread:
    sizes = [run.log_bytes / 2**20 for run in results["micro_batches"][COMMIT]]
    if not all(sizes):
        raise NotMeasuredError("micro_batches: the commit log's files were not found")
    return spread(sizes)


def _producer_cpu(results: Results) -> Spread:
    runs = results["producer-8"]
    return ratio(cpu_per_million(runs[SINK]), cpu_per_million(runs[CONFLUENT]))


def _producer_cpu_of_many(results: Results) -> Spread:
    many, few = cpu_per_million(results["producer-1000"][SINK]), cpu_per_million(results["producer-8"][SINK])
    rounds = min(len(many), len(few))
    return ratio(many[:rounds], few[:rounds])


def _embedded(results: Results) -> Spread:
    return ratio(rows_per_s(results["embedded"][EMBEDDED]), rows_per_s(results["embedded"][SINK]))


def _cheaper_than(cell: str, other: str) -> Figure:
    """Returns the CPU per row of another contender, relative to that of this sink."""
    return lambda results: ratio(cpu_per_million(results[cell][other]), cpu_per_million(results[cell][SINK]))


def _avro_append(results: Results) -> Spread:
    runs = results["avro-append"]
    return ratio(cpu_per_million(runs[AVRO_APPEND]), cpu_per_million(runs[BYTES_APPEND]))


def _memory(cell: str) -> Figure:
    """Returns the MB of the sink's worker beyond those of a worker that drops its input."""

    def figure(results: Results) -> Spread:
        pairs = zip(results[cell][SINK], results[cell][CEILING], strict=True)
        return spread([(ours.peak_rss - dropping.peak_rss) / 2**20 for ours, dropping in pairs])

    return figure


GOALS: Sequence[Goal] = (
    Goal("100 B, none, 8 partitions: rows/s against Spark's JVM sink", _faster_than_jvm("100B-json-none-8"), 1.8),
    Goal("100 B, lz4, 8 partitions: rows/s against Spark's JVM sink", _faster_than_jvm("100B-json-lz4-8"), 1.4),
    Goal("1 KB, none, 8 partitions: rows/s against Spark's JVM sink", _faster_than_jvm("1KB-json-none-8"), 1.2),
    Goal("1 KB, lz4, 8 partitions: rows/s against Spark's JVM sink", _faster_than_jvm("1KB-json-lz4-8"), 1.0),
    Goal("1 KB, zstd, 8 partitions: rows/s against Spark's JVM sink", _faster_than_jvm("1KB-json-zstd-8"), 1.2),
    Goal("100 B, none, 200 partitions: rows/s against Spark's JVM sink", _faster_than_jvm("100B-json-none-200"), 1.5),
    Goal("100 B, none, 8 partitions: rows/s against confluent-kafka", _faster_than("100B-json-none-8", CONFLUENT), 8.0),
    Goal("100 B, lz4, 8 partitions: rows/s of the ceiling", _faster_than("100B-json-lz4-8", CEILING), 0.55),
    Goal("producer, 8 partitions: CPU per row of confluent-kafka's", _producer_cpu, 0.2, at_least=False),
    Goal("producer, 1,000 partitions: CPU per row of that at 8", _producer_cpu_of_many, 2.0, at_least=False),
    Goal("send(), one record at a time: rows/s against kafka-python", _faster_than("send-8", KAFKA_PYTHON, SEND), 5.0),
    Goal("send(), one record at a time: rows/s against confluent-kafka", _faster_than("send-8", CONFLUENT, SEND), 0.25),
    Goal("embedded broker, 100 B, lz4, 8 partitions: rows/s of this sink into it, of real Kafka's", _embedded, 0.5),
    Goal(
        "exactly once, micro-batches of 1,000,000 rows: rows/s of at least once",
        _faster_than("exactly_once", AT_LEAST_ONCE, EXACTLY_ONCE),
        0.85,
    ),
    Goal("exactly once, 8 tasks with hardly any rows: ms a micro-batch over at least once", _ms_more, 150, at_least=False),
    Goal(
        "exactly once, 8 tasks: ids more than live workers x slots",
        _ids_too_many("small_batches", EXACTLY_ONCE),
        0,
        at_least=False,
    ),
    Goal("exactly once, 200 tasks: ms of a commit", _commit_ms, 1000, at_least=False),
    Goal(
        "exactly once, many micro-batches: median ms of a claim and read of the commit log, by a driver that has read it before",
        _log_read_ms(0.5),
        20,
        at_least=False,
    ),
    Goal("exactly once, many micro-batches: the same, 99th percentile", _log_read_ms(0.99), 20, at_least=False),
    Goal("exactly once, many micro-batches: ms of a new driver's first claim, which reads the whole log", _cold_read_ms, None),
    Goal(
        "exactly once, many micro-batches: ids more than workers x slots, workers that are gone counted",
        _ids_too_many("micro_batches", COMMIT),
        0,
        at_least=False,
    ),
    Goal("exactly once, many micro-batches: MB of commit log, at its largest", _commit_log_mb, COMMIT_LOG_MB, at_least=False),
    *(
        Goal(f"Avro, {fields}: CPU per row of {other}, of this sink's", _cheaper_than(cell, name), bound)
        for cell, fields in (("avro-5", "5 fields"), ("avro-20", "20 fields, half nullable"))
        for name, other, bound in (
            (FASTAVRO, "fastavro", 10.0),
            (PYRUHVRO_PREFIXED, "pyruhvro with the schema's id", 1.0),
            (PYRUHVRO, "pyruhvro without it", 1.0),
        )
    ),
    Goal("Avro, 5 fields: CPU per row of an append of structs, of the same bytes", _avro_append, 3.0, at_least=False),
    Goal("memory, 100 B: MB over a worker that drops its input", _memory("memory-100B"), MEMORY_MB, at_least=False),
    Goal("memory, 100 KB: MB over a worker that drops its input", _memory("memory-100KB"), MEMORY_MB, at_least=False),
)


class _Measured(dict[str, Sequence[Run]]):
    """Returns a cell's runs, without contenders that failed."""

    def __init__(self, runs: Runs) -> None:
        super().__init__((name, them) for name, them in runs.items() if them)

    def __missing__(self, name: str) -> Sequence[Run]:
        raise NotMeasuredError(f"{name} failed, or did not take part")


def reached(results: Results) -> list[tuple[Goal, Spread | None]]:
    """Returns each goal whose cells were measured, with None if a contender that it needs failed."""
    measured = {cell: _Measured(runs) for cell, runs in results.items()}
    found: list[tuple[Goal, Spread | None]] = []
    for goal in GOALS:
        try:
            found.append((goal, goal.figure(measured)))
        except NotMeasuredError:
            found.append((goal, None))
        except KeyError:
            continue  # a cell that was not requested
    return found
