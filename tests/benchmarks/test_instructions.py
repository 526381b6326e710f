"""Instruction counts: what the comparison with the baseline reports, and that the counted paths still run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.instructions import __main__ as command
from benchmarks.instructions.counts import BASELINE, Counter, Counts, changes, load, save
from tests.test_project import constraints

FACTS = {"python": "3.11", "numpy": "2", "pyarrow": "26"}
PATH = "append"


def counts(functions: Mapping[str, int], *, path: str = PATH, **facts: str) -> Counts:
    return Counts({**FACTS, **facts}, {Counter.BYTECODE: {path: functions}})


def exit_code(
    baseline: Counts, now: Counts, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str, again: Counts | None = None
) -> int:
    """Compares, or writes. now: what the first run counts. again: what later runs count, the same by default."""
    file = folder / "baseline.json"
    save(baseline, file)
    monkeypatch.setattr(command, "_count", lambda valgrind, seed: again if seed and again else now)
    return command.main(["--baseline", str(file), *options])


def test_growth_of_more_than_3_percent_fails_and_names_the_functions_that_grew_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = counts({"plan": 600, "encode": 400, "copy": 10}), counts({"plan": 700, "encode": 440, "copy": 5})
    assert exit_code(before, after, tmp_path, monkeypatch) == 1
    said = capsys.readouterr().out
    assert "append: bytecode grew by 13.4 %: 1,010 -> 1,145" in said
    lines = [line.split() for line in said.splitlines() if line.startswith("    ")]
    assert lines == [["plan", "600", "->", "700"], ["encode", "400", "->", "440"]]
    assert "make count WRITE=1" in said


@pytest.mark.parametrize("after", [970, 1000, 1030])
def test_a_difference_of_3_percent_is_no_change(after: int) -> None:
    assert changes(counts({"plan": 1000}), counts({"plan": after})) == []


def test_growth_that_a_second_run_does_not_have_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    baseline, collisions, usual = counts({"plan": 1000}), counts({"plan": 1040}), counts({"plan": 1005})
    assert exit_code(baseline, collisions, tmp_path, monkeypatch, again=usual) == 0
    assert exit_code(baseline, collisions, tmp_path, monkeypatch) == 1


@pytest.mark.parametrize(("before", "after"), [("append", "flush"), ("flush", "append")])
def test_a_path_that_only_one_of_both_has_fails(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(counts({"plan": 1}, path=before), counts({"plan": 1}, path=after), tmp_path, monkeypatch) == 1
    assert "append, flush" in capsys.readouterr().out


def test_counts_of_other_versions_are_not_compared_and_the_versions_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(counts({"plan": 1}), counts({"plan": 2}, python="3.12"), tmp_path, monkeypatch) == 0
    said = capsys.readouterr().out
    assert "bytecode is not compared: python is '3.12' and was '3.11'" in said
    assert "libraries is not counted: install valgrind" in said


# The real paths


def paths_of(counted: Counts) -> Mapping[Counter, Sequence[str]]:
    return {counter: list(paths) for counter, paths in counted.paths.items()}


def test_the_baseline_has_every_counter_and_the_versions_of_the_constraints() -> None:
    baseline = load(BASELINE)
    assert set(baseline.paths) == set(Counter)
    assert len({tuple(paths) for paths in paths_of(baseline).values()}) == 1
    versions = {library: constraints()[library] for library in ("numpy", "pyarrow", "crc32c")}
    assert baseline.facts.items() >= versions.items()


def test_the_paths_run_and_their_bytecode_repeats_exactly() -> None:
    first, second = command._count(None, 0), command._count(None, 1)
    assert first.paths == second.paths
    assert list(first.paths[Counter.BYTECODE]) == paths_of(load(BASELINE))[Counter.BYTECODE]
    assert "spark_kafka_sink.records.pieces:encode_pieces" in first.paths[Counter.BYTECODE]["append"]
    names = {name for functions in first.paths[Counter.BYTECODE].values() for name in functions}
    assert not [name for name in names if name.startswith("benchmarks.")]
