"""Medians, ratios of rounds, and which goal is met."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.figures import GOALS, MEMORY_MB, Goal, Spread, best_jvm, ratio, reached, spread
from benchmarks.results import (
    CEILING,
    COMMIT,
    CONFLUENT,
    JVM,
    JVM_TUNED,
    LOG_READ,
    SINK,
    Results,
    Run,
)


def at(*rows_per_s: float) -> Sequence[Run]:
    return [Run(rows=1_000_000, seconds=1e6 / speed, cpu_s=1.0) for speed in rows_per_s]


def peaking(*megabytes: int) -> Sequence[Run]:
    return [Run(rows=1, seconds=1.0, cpu_s=0.0, peak_rss=size * 2**20) for size in megabytes]


def figure_of(text: str, results: Results) -> Spread | None:
    return next(figure for goal, figure in reached(results) if goal.text.startswith(text))


def goal(text: str) -> Goal:
    return next(goal for goal in GOALS if goal.text.startswith(text))


def test_a_spread_is_the_median_with_the_least_and_the_largest() -> None:
    assert spread([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0)


def test_a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_rounds() -> None:
    # rounds: 2, 4, 1; medians: 4 / 2
    assert ratio([2.0, 8.0, 4.0], [1.0, 2.0, 4.0]) == Spread(2.0, 1.0, 4.0)


@pytest.mark.parametrize(("default", "tuned", "best"), [(2.0, 1.0, 2.0), (1.0, 2.0, 2.0)])
def test_of_the_jvm_sink_the_better_settings_count(default: float, tuned: float, best: float) -> None:
    (run,) = best_jvm({JVM: at(default), JVM_TUNED: at(tuned)})
    assert run.rows_per_s == pytest.approx(best)


def test_a_goal_whose_contender_failed_or_took_no_part_is_told_as_not_measured() -> None:
    results = {"100B-json-none-8": {SINK: at(9.0), CONFLUENT: at(1.0), JVM: []}, "100B-json-lz4-8": {SINK: at(1.0)}}
    assert {goal.text: figure is not None for goal, figure in reached(results)} == {
        goal("100 B, none, 8 partitions: rows/s against Spark").text: False,
        goal("100 B, none, 8 partitions: rows/s against confluent").text: True,
        goal("100 B, lz4, 8 partitions: rows/s against Spark").text: False,
        goal("100 B, lz4, 8 partitions: rows/s of the ceiling").text: False,
    }


@pytest.mark.parametrize("text", ["exactly once, many micro-batches: ids", "exactly once, many micro-batches: MB"])
def test_no_ids_and_an_empty_log_are_not_measured_rather_than_within_their_bounds(text: str) -> None:
    results = {"micro_batches": {COMMIT: commits(1, ids=0, most_ids=2, log_bytes=0), LOG_READ: commits(1)}}
    assert figure_of(text, results) is None


@pytest.mark.parametrize(("measured", "met"), [(1.79, False), (1.8, True), (2.5, True)])
def test_a_speed_is_reached_from_its_bound_up(measured: float, met: bool) -> None:
    assert goal("100 B, none, 8 partitions: rows/s against Spark").met(Spread(measured, 0.0, 9.0)) is met


@pytest.mark.parametrize(("measured", "met"), [(0.1, True), (0.2, True), (0.21, False)])
def test_a_cost_is_reached_up_to_its_bound(measured: float, met: bool) -> None:
    assert goal("producer, 8 partitions").met(Spread(measured, 0.0, 9.0)) is met


def test_memory_is_what_the_sink_takes_over_a_worker_that_drops_its_input() -> None:
    results = {"memory-100B": {CEILING: peaking(140), SINK: peaking(140 + MEMORY_MB + 1)}}
    ((memory, figure),) = reached(results)
    assert figure is not None
    assert figure.middle == MEMORY_MB + 1
    assert not memory.met(figure)


def commits(*milliseconds: float, ids: int = 1, most_ids: int = 1, log_bytes: int = 0) -> Sequence[Run]:
    return [Run(1, each / 1000, 0.0, ids=ids, most_ids=most_ids, log_bytes=log_bytes) for each in milliseconds]
