"""Medians, ratios of rounds, and which goal is met."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import GOALS, MEMORY_MB, Goal, Spread, ratio, reached, spread
from benchmarks.results import (
    CEILING,
    CONFLUENT,
    JVM,
    SINK,
    Run,
)


def at(*rows_per_s: float) -> Sequence[Run]:
    return [Run(rows=1_000_000, seconds=1e6 / speed, cpu_s=1.0) for speed in rows_per_s]


def peaking(*megabytes: int) -> Sequence[Run]:
    return [Run(rows=1, seconds=1.0, cpu_s=0.0, peak_rss=size * 2**20) for size in megabytes]


def goal(text: str) -> Goal:
    return next(goal for goal in GOALS if goal.text.startswith(text))


def test_a_spread_is_the_median_with_the_least_and_the_largest() -> None:
    assert spread([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0)


def test_a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_rounds() -> None:
    # rounds: 2, 4, 1; medians: 4 / 2
    assert ratio([2.0, 8.0, 4.0], [1.0, 2.0, 4.0]) == Spread(2.0, 1.0, 4.0)


def test_a_goal_whose_contender_failed_or_took_no_part_is_told_as_not_measured() -> None:
    results = {"100B-json-none-8": {SINK: at(9.0), CONFLUENT: at(1.0), JVM: []}, "100B-json-lz4-8": {SINK: at(1.0)}}
    assert {goal.text: figure is not None for goal, figure in reached(results)} == {
        goal("100 B, none, 8 partitions: rows/s against Spark").text: False,
        goal("100 B, none, 8 partitions: rows/s against confluent").text: True,
        goal("100 B, lz4, 8 partitions: rows/s against Spark").text: False,
        goal("100 B, lz4, 8 partitions: rows/s of the ceiling").text: False,
    }


def test_memory_is_what_the_sink_takes_over_a_worker_that_drops_its_input() -> None:
    results = {"memory-100B": {CEILING: peaking(140), SINK: peaking(140 + MEMORY_MB + 1)}}
    ((memory, figure),) = reached(results)
    assert figure is not None
    assert figure.middle == MEMORY_MB + 1
    assert not memory.met(figure)
