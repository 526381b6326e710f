"""Medians, ratios of rounds, and which goal is met."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figures import GOALS, MEMORY_MB, Goal, Spread, best_jvm, ratio, reached, spread
from benchmarks.results import (
    AT_LEAST_ONCE,
    CEILING,
    COMMIT,
    CONFLUENT,
    EXACTLY_ONCE,
    JVM,
    JVM_TLS,
    JVM_TUNED,
    LOG_READ,
    SINK,
    SINK_SCRAM,
    SINK_TLS,
    START,
    START_SASL_SSL,
    Results,
    Run,
)

SPEEDS = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=9)


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


@given(SPEEDS)
def test_a_contender_is_once_as_fast_as_itself(speeds: list[float]) -> None:
    assert ratio(speeds, speeds) == Spread(1.0, 1.0, 1.0)


def test_a_ratio_of_unlike_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0, 2.0], [1.0])


def test_cpu_seconds_per_million_rows_do_not_depend_on_the_wall_clock() -> None:
    assert Run(rows=4_000_000, seconds=7.0, cpu_s=2.0).cpu_per_million == 0.5


@pytest.mark.parametrize(("default", "tuned", "best"), [(2.0, 1.0, 2.0), (1.0, 2.0, 2.0)])
def test_of_the_jvm_sink_the_better_settings_count(default: float, tuned: float, best: float) -> None:
    (run,) = best_jvm({JVM: at(default), JVM_TUNED: at(tuned)})
    assert run.rows_per_s == pytest.approx(best)


def test_a_jvm_sink_that_failed_with_our_settings_counts_at_its_own() -> None:
    results = {"100B-json-none-8": {SINK: at(4.0), JVM: at(2.0), JVM_TUNED: []}}
    figure = figure_of("100 B, none, 8 partitions: rows/s against Spark", results)
    assert figure is not None
    assert figure.middle == pytest.approx(2.0)


def test_a_goal_whose_contender_failed_or_took_no_part_is_told_as_not_measured() -> None:
    results = {"100B-json-none-8": {SINK: at(9.0), CONFLUENT: at(1.0), JVM: []}, "100B-json-lz4-8": {SINK: at(1.0)}}
    assert {goal.text: figure is not None for goal, figure in reached(results)} == {
        goal("100 B, none, 8 partitions: rows/s against Spark").text: False,
        goal("100 B, none, 8 partitions: rows/s against confluent").text: True,
        goal("100 B, lz4, 8 partitions: rows/s against Spark").text: False,
        goal("100 B, lz4, 8 partitions: rows/s of the ceiling").text: False,
    }


def test_nothing_is_told_of_cells_that_nobody_asked_for() -> None:
    assert reached({"producer-1000": {SINK: at(1.0)}}) == []


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


def test_a_small_micro_batch_costs_what_its_round_took_longer_exactly_once() -> None:
    results = {"small_batches": {AT_LEAST_ONCE: commits(100, 200, 300), EXACTLY_ONCE: commits(150, 260, 370)}}
    figure = figure_of("exactly once, 8 tasks with hardly any rows", results)
    assert figure is not None
    assert (figure.middle, figure.low, figure.high) == pytest.approx((60, 50, 70))


@pytest.mark.parametrize(("figure", "measured"), [("median ms", 50), ("the same", 99)])
def test_a_commits_look_at_its_log_is_judged_in_the_middle_and_where_it_is_slow(figure: str, measured: float) -> None:
    results = {"micro_batches": {LOG_READ: commits(*range(100)), COMMIT: commits(1)}}
    assert goal(f"exactly once, many micro-batches: {figure}").figure(results).middle == pytest.approx(measured)


@pytest.mark.parametrize(("ids", "met"), [(2, True), (3, False)])
def test_no_more_transactional_ids_than_slots_of_workers_are_left(ids: int, met: bool) -> None:
    results = {"micro_batches": {COMMIT: commits(1, ids=ids, most_ids=2)}}
    bounded = goal("exactly once, many micro-batches: ids")
    assert bounded.met(bounded.figure(results)) is met


@pytest.mark.parametrize(("size", "met"), [(4 * 2**20, True), (5 * 2**20, False)])
def test_a_commit_log_has_to_stay_small(size: int, met: bool) -> None:
    small = goal("exactly once, many micro-batches: MB")
    assert small.met(small.figure({"micro_batches": {COMMIT: commits(1, log_bytes=size)}})) is met


def test_many_partitions_are_compared_over_the_rounds_that_both_cells_have() -> None:
    few = [Run(1_000_000, 1.0, cpu) for cpu in (0.1, 0.1, 0.1)]
    many = [Run(1_000_000, 1.0, cpu) for cpu in (0.2, 0.1)]
    results = {"producer-8": {SINK: few}, "producer-1000": {SINK: many}}
    figure = figure_of("producer, 1,000 partitions", results)
    assert figure is not None
    assert (figure.middle, figure.low, figure.high) == pytest.approx((1.5, 1.0, 2.0))


def test_what_tls_costs_is_compared_with_what_it_costs_sparks_own_sink() -> None:
    # TLS keeps 0.6 of this sink's speed, and 0.75 of that of Spark's
    results = {"tls": {SINK: at(100.0, 200.0), SINK_TLS: at(60.0, 120.0), JVM: at(40.0, 80.0), JVM_TLS: at(30.0, 60.0)}}
    figure = figure_of("TLS, 100 B, none, 8 partitions: share", results)
    assert figure is not None
    assert figure.middle == pytest.approx(0.8)
    assert not goal("TLS, 100 B, none, 8 partitions: share").met(figure)


def test_a_login_may_cost_hardly_anything_once_connected() -> None:
    cheap, dear = ({"tls": {SINK: at(100.0), SINK_SCRAM: at(speed)}} for speed in (98.0, 90.0))
    text = "SCRAM, 100 B"
    assert [goal(text).met(figure) for each in (cheap, dear) if (figure := figure_of(text, each)) is not None] == [True, False]


@pytest.mark.parametrize(("cell", "text"), [("first_ack", "a new producer"), ("new_process", "a new process")])
def test_the_time_to_a_first_ack_is_that_of_plain_text_by_half_more_at_most(cell: str, text: str) -> None:
    results = {cell: {START: [Run(10, 1.0, 0.0)] * 3, START_SASL_SSL: [Run(10, 1.75, 0.0)] * 3}}
    figure = figure_of(text, results)
    assert figure == Spread(1.75, 1.75, 1.75)
    assert not goal(text).met(figure)
    assert goal(text).met(Spread(1.4, 1.4, 1.4))
