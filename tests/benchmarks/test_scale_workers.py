"""The figures of many workers, from what was seen. The measurement itself takes minutes: `make scale`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.pictures import keep, kept
from benchmarks.scale.worker_figures import Sample, busiest, judged, made_tables
from benchmarks.scale.workers import Plan, measure


def test_the_busiest_window_holds_the_most_events() -> None:
    assert busiest([0.0, 0.5, 0.9, 1.0, 5.0], 1.0) == 3
    assert busiest([], 1.0) == 0


def test_lost_and_doubled_rows_are_counted() -> None:
    found = judged({1: 2, 2: 1}, Counter({"1:0": 1, "2:0": 2}))
    assert found == {"rows": 3, "rows lost": 1, "rows doubled": 1}


def test_samples_are_read_as_they_were_kept(tmp_path: Path) -> None:
    samples = [Sample(1000, "start s", 4.5), Sample(1000, "timeline Metadata", 3.0, 0.2)]
    keep(tmp_path / "samples.csv", "a machine", samples)
    assert kept(tmp_path / "samples.csv", Sample) == ("a machine", samples)


def test_a_line_of_the_tables_has_the_figures_of_a_number_of_workers() -> None:
    made = made_tables("a machine", [Sample(1000, "connections", 998.3), Sample(1000, "threads", 1.0)])
    assert "| workers | connections per broker | threads |" in made
    assert "| 1,000 | 998 | 1.0 |" in made
    assert "Measured on a machine." in made


@pytest.mark.kafka
@pytest.mark.whole("a cluster of its own, which loses a broker: 30 s")
def test_a_few_workers_lose_no_row_when_a_broker_is_killed(tmp_path: Path) -> None:
    measure(quick=True, folder=tmp_path, plan=Plan((4,), idle_s=0.5, active_s=1.0, calm_s=2.0, quiet_s=2.0))
    _, samples = kept(tmp_path / "scale_workers.csv", Sample)
    found = {sample.figure: sample.value for sample in samples}
    assert found["rows"] > 0
    assert found["rows lost"] == found["rows doubled"] == 0
    assert found["threads"] == 1
    assert (tmp_path / "scale_workers.svg").exists()
