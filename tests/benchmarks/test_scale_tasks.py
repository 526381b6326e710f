"""The tables of commits of many tasks, from samples. The measurement itself takes minutes: `make scale`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pictures import kept
from benchmarks.scale import tasks
from benchmarks.scale.tasks import Sample, measure, tables

SAMPLES = """# 2026-01-01; a machine
kind,brokers,tasks,init_s,write_s,seconds,claim_s,describe_s,list_s,end_s,cpu_s,broker_cpu_s,record_bytes,memory_mib
first commit,1,10000,1.5,5.0,8.0,0.15,1.3,0.15,5.0,1.7,7.24,1900000,25.5
resumed,1,10000,1.5,5.0,16.5,0.15,0.0,0.15,10.0,3.4,14.5,1900000,30.0
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "scale_tasks.csv"
    found.write_text(SAMPLES, encoding="utf-8")
    return found


def test_a_call_has_its_time_and_how_many_transactions_it_ended_each_second(path: Path) -> None:
    made = tables(path)
    assert "Measured on 2026-01-01; a machine." in made
    assert [cell.strip() for cell in _row(made, "first commit").split("|")[2:-1]] == [
        "1",
        "10,000",
        "8.00 s",
        "5.00 s",
        "2,000",
        "1.70 s",
        "7.24 s",
    ]


def test_a_resumed_batch_ends_the_transactions_of_both_attempts(path: Path) -> None:
    assert "| 16 s | 10 s | 2,000 |" in _row(tables(path), "new driver")


def test_the_parts_of_a_first_commit_have_the_size_of_its_record(path: Path) -> None:
    assert "| 1 | 10,000 | 1.50 s | 0.15 s | 1.30 s | 0.15 s | 1,900 KB | 26 MiB |" in tables(path)


def _row(made: str, start: str) -> str:
    return next(line for line in made.splitlines() if line.startswith(f"| {start}"))


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
