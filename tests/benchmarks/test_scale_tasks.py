"""The tables of commits of many tasks, from samples. The measurement itself takes minutes: `make scale`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pictures import kept
from benchmarks.scale import tasks
from benchmarks.scale.tasks import Sample, measure


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.whole("a measurement; its requests are those of tests/exactly_once")
def test_commits_of_a_few_tasks_are_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "QUICK", {1: (3,)})
    measure(True, tmp_path)
    measured_on, samples = kept(tmp_path / "scale_tasks.csv", Sample)
    assert "Kafka" in measured_on
    assert [sample.kind for sample in samples] == [tasks.FIRST, tasks.LATER, tasks.RESUMED, tasks.ABORTED]
    assert all(0 < sample.end_s < sample.seconds for sample in samples)
    assert "<svg" in (tmp_path / "scale_tasks.svg").read_text(encoding="utf-8")
