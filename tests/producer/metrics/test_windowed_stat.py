"""Averages, maxima and rates are those of Kafka's own classes, and those of the values in the windows one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.producer.metrics.metric_table import Measured, WindowedStat
from tests.every import every
from tests.producer.metrics.golden_metrics import STATISTICS, History, histories, run_java


def as_java_prints(measured: Measured) -> list[float]:
    return [measured.average, measured.maximum, measured.rate, measured.count_rate, measured.ratio, measured.all_total]


@every("history", histories(STATISTICS.read_text()))
def test_every_figure_is_javas(history: History) -> None:
    stat = WindowedStat(history.windows, history.window_ms)
    for kind, now_ms, values in history.events:
        if kind == "record":
            stat.record(values[0], now_ms)
        else:
            assert as_java_prints(stat.measure(now_ms)) == pytest.approx(values, nan_ok=True)


@pytest.mark.whole("starts Java, whose golden file changes with its release only; the others here compare with that file")
@pytest.mark.java
def test_the_golden_file_is_what_java_prints() -> None:
    assert run_java("statistics") == STATISTICS.read_text()


@dataclass
class Model:
    """Keeps every value: a window is when it began and its values with their times."""

    windows: int
    window_ms: int
    kept: list[tuple[int, list[tuple[int, float]]]] = field(default_factory=list)

    def record(self, value: float, now_ms: int) -> None:
        if not self.kept or now_ms - self.kept[-1][0] >= self.window_ms:
            self.kept.append((now_ms, []))
        self.kept[-1][1].append((now_ms, value))

    def values(self, now_ms: int) -> list[float]:
        """Of the last windows, one more than are asked for, that had a value in the time that is asked for."""
        return [
            value
            for _, values in self.kept[-self.windows - 1 :]
            if now_ms - values[-1][0] < self.windows * self.window_ms
            for _, value in values
        ]


STEPS = st.lists(st.tuples(st.integers(0, 250), st.integers(-5, 1000)), min_size=1, max_size=60)


@given(windows=st.integers(1, 4), window_ms=st.integers(1, 100), steps=STEPS, later=st.integers(0, 500))
def test_what_is_measured_is_what_lies_in_the_windows(
    windows: int, window_ms: int, steps: list[tuple[int, int]], later: int
) -> None:
    stat, model, now_ms = WindowedStat(windows, window_ms), Model(windows, window_ms), 0
    for step_ms, value in steps:
        now_ms += step_ms
        stat.record(value, now_ms)
        model.record(value, now_ms)
    now_ms += later
    measured, values = stat.measure(now_ms), model.values(now_ms)
    assert (measured.number, measured.total) == (len(values), sum(values))
    assert measured.maximum == max(values) if values else isnan(measured.maximum)
    assert measured.average == pytest.approx(sum(values) / len(values)) if values else isnan(measured.average)
    assert (measured.all_number, measured.all_total) == (len(steps), sum(value for _, value in steps))
    assert measured.elapsed_ms >= max((windows - 1) * window_ms, 1)


@given(values=st.lists(st.integers(-100, 100), min_size=1), now_ms=st.integers(0, 1000))
def test_values_of_one_time_count_alike_at_once_or_one_by_one(values: list[int], now_ms: int) -> None:
    at_once, one_by_one = WindowedStat(2, 100), WindowedStat(2, 100)
    for stat in (at_once, one_by_one):
        stat.record(3, 0)
    at_once.record_all(sum(values), len(values), max(values), now_ms)
    for value in values:
        one_by_one.record(value, now_ms)
    assert at_once.measure(now_ms) == one_by_one.measure(now_ms)


def test_nothing_has_no_average_no_maximum_and_a_rate_of_0() -> None:
    measured = WindowedStat(2, 30_000).measure(5)
    assert isnan(measured.average)
    assert isnan(measured.maximum)
    assert (measured.rate, measured.count_rate, measured.ratio) == (0, 0, 0)


def test_a_rate_asked_for_with_an_older_time_than_the_newest_value_is_still_one_of_whole_windows() -> None:
    stat = WindowedStat(2, 30_000)
    stat.record(60, 1_001)
    assert stat.measure(1_000).rate == 60 / 30


def test_windows_of_no_length_do_not_divide_by_it() -> None:
    stat = WindowedStat(2, 0)
    stat.record(1, 7)
    assert stat.measure(7).rate == 1000
