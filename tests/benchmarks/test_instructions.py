"""Instruction counts: what the comparison with the baseline reports, and that the counted paths still run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.instructions import __main__ as command
from benchmarks.instructions import callgrind
from benchmarks.instructions.counts import BASELINE, Counter, Counts, changes, differing_facts, load, save
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


def test_a_written_baseline_has_the_smallest_count_of_each_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    first = Counts(FACTS, {Counter.BYTECODE: {"a": {"plan": 10}, "b": {"plan": 25}}})
    second = Counts(FACTS, {Counter.BYTECODE: {"a": {"plan": 15}, "b": {"plan": 20}}})
    assert exit_code(counts({"plan": 1}), first, tmp_path, monkeypatch, "--write", "--runs", "2", again=second) == 0
    assert load(tmp_path / "baseline.json").paths[Counter.BYTECODE] == {"a": {"plan": 10}, "b": {"plan": 20}}


def test_growth_in_one_path_fails_though_another_shrank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Counts(FACTS, {Counter.BYTECODE: {"a": {"plan": 100}, "b": {"plan": 100}}})
    after = Counts(FACTS, {Counter.BYTECODE: {"a": {"plan": 10}, "b": {"plan": 110}}})
    assert exit_code(before, after, tmp_path, monkeypatch) == 1


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


def test_another_build_of_python_excludes_only_the_counts_that_depend_on_it() -> None:
    here, there = counts({}, build="3.11.7"), counts({}, build="3.11.9")
    assert [counter for counter in Counter if differing_facts(there, here, counter)] == [Counter.SYSTEM]


def test_callgrind_counts_are_those_of_the_function_itself_by_its_package() -> None:
    lines = """
desc: Trigger: Client Request: hash keys

ob=/v/lib/python3.11/site-packages/numpy/_core/umath.so
fl=???
fn=UINT_multiply
0 100
cob=/lib/libc.so.6
cfn=memcpy
calls=2 0
0 5000
7 1
fn=0x00000000001234
0 5
ob=/v/lib/python3.11/site-packages/numpy.libs/blas.so
fn=dot'2
0 6
ob=/lib/libc.so.6
fn=memcpy
0 30
""".splitlines()
    found = callgrind.read(lines)
    assert found is not None
    assert found.path == "hash keys"
    assert found.libraries == {"numpy: UINT_multiply": 101, "numpy: (no name)": 5, "numpy: dot": 6}
    assert found.system == {"libc.so.6: memcpy": 30}


def test_the_file_that_callgrind_writes_at_the_end_belongs_to_no_path() -> None:
    assert callgrind.read(["desc: Trigger: Program termination", "totals: 0"]) is None


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
