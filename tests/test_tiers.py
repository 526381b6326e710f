"""Every test is run by one of the commands, and the quick commands leave out only what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.fault_lines import ONLY_IN_ALL
from tests.fault_table import marked_tests
from tests.tiers import (
    COLLECTED,
    NOT_QUICK,
    PLACES_OF_ALL,
    WHOLE,
    Tier,
    marks_of,
    real_twins,
    tiers_of,
    twin_name,
)

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("marks", "has_real_twin", "tiers"),
    [
        ((), False, {Tier.QUICK, Tier.TEST, Tier.ALL}),
        (("slow",), False, {Tier.TEST, Tier.ALL}),
        (("embedded",), True, {Tier.QUICK, Tier.ALL}),
        (("kafka",), False, {Tier.TEST, Tier.ALL}),
        (("java",), False, {Tier.TEST, Tier.ALL}),
        (("spark", "embedded"), True, {Tier.ALL}),
        (("chaos", "embedded"), False, {Tier.TEST, Tier.ALL}),
        (("whole", "kafka"), False, {Tier.ALL}),
        (("whole",), False, {Tier.ALL}),
    ],
)
def test_a_test_has_its_tiers_by_its_marks(marks: tuple[str, ...], has_real_twin: bool, tiers: set[Tier]) -> None:
    assert tiers_of(marks, has_real_twin=has_real_twin) == tiers


@pytest.mark.slow
def test_a_run_goes_on_after_a_worker_that_died(tmp_path: Path) -> None:
    """As a test that hangs ends its worker. pytest-xdist 3.8 alone waits without an end, and runs that test five times."""
    dies = ["import os", "def test_dies(): os._exit(1)"]
    others = [f"def test_{number}(): pass" for number in range(3)]
    for name, lines in {"a": others, "b": [*others, *dies], "c": others[:1]}.items():
        group = ["import pytest", f"pytestmark = pytest.mark.xdist_group('{name}')"]
        (tmp_path / f"test_{name}.py").write_text("\n".join([*group, *lines]))
    command = [sys.executable, "-m", "pytest", "-n", "1", "--dist", "loadgroup", "-p", "tests.scheduling"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "1 failed, 7 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "crashed while running 'test_b.py::test_dies@b'" in ended.stdout


def test_one_version_of_kafka_follows_the_other(request: pytest.FixtureRequest) -> None:
    """Each starts a cluster, and the next one ends it. Looks at the tests of this run, in their order."""
    calls: list[Any] = [item for item in request.session.items if item.nodeid.startswith("tests/kafka_versions/")]
    parameters = [item.callspec.params for item in calls if hasattr(item, "callspec")]
    versions = [each["kafka_version"] for each in parameters if "kafka_version" in each]
    assert [version for version, _ in groupby(versions)] == sorted(set(versions))


def test_every_test_is_in_make_test_or_says_why_not(pytestconfig: pytest.Config) -> None:
    """Looks at the tests of this run: all of them in `make test`."""
    collected = pytestconfig.stash[COLLECTED]
    twins = real_twins(collected)
    runs = defaultdict[str, list[pytest.Item]](list)
    for item in collected:
        runs[item.nodeid.partition("[")[0].partition("@")[0]].append(item)
    without = {
        name: items
        for name, items in runs.items()
        if not any(Tier.TEST in tiers_of(marks_of(item), has_real_twin=twin_name(item) in twins) for item in items)
    }
    marks = {item.nodeid: list(item.iter_markers(WHOLE)) for item in collected}
    assert [item.nodeid for items in without.values() for item in items if not marks[item.nodeid]] == []
    assert [name for name, each in marks.items() if not all(mark.args and mark.args[0] for mark in each)] == []


def test_every_fault_happens_in_make_test_or_says_why_not(pytestconfig: pytest.Config) -> None:
    """Looks at the lines whose tests are in files of this run: all of them in `make test`."""
    collected = pytestconfig.stash[COLLECTED]
    files = {item.nodeid.partition("::")[0] for item in collected}
    twins = real_twins(collected)
    places = tuple(PLACES_OF_ALL)
    in_test = [
        item
        for item in collected
        if not item.nodeid.startswith(places) and Tier.TEST in tiers_of(marks_of(item), has_real_twin=twin_name(item) in twins)
    ]
    made = {mark.args[1] for item in in_test for mark in item.iter_markers("fault")}
    tests = [(test.line, f"tests/{test.file}") for test in marked_tests()]
    elsewhere = {line for line, file in tests if file not in files and not file.startswith(places)}
    assert {line for line, _ in tests} - elsewhere - made <= set(ONLY_IN_ALL)
    assert made & set(ONLY_IN_ALL) == set(), "runs in make test"


@pytest.mark.parametrize("place", [*PLACES_OF_ALL, *NOT_QUICK])
def test_what_a_tier_does_not_collect_exists(place: str) -> None:
    assert (ROOT / place).is_dir() if place.endswith("/") else (ROOT / place).is_file()
