"""The figures of many workers, from what was seen. The measurement itself takes minutes: `make scale`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.pictures import kept
from benchmarks.scale.worker_figures import Sample, judged
from benchmarks.scale.workers import Plan, measure


def test_lost_and_doubled_rows_are_counted() -> None:
    found = judged({1: 2, 2: 1}, Counter({"1:0": 1, "2:0": 2}))
    assert found == {"rows": 3, "rows lost": 1, "rows doubled": 1}


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
