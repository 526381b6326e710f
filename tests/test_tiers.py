"""Every test is run by one of the commands, and the quick commands leave out only what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import (
    COLLECTED,
    HALF,
    NO_SECOND_TRY,
    SECOND_HALF,
    WHOLE,
    Tier,
    group_of,
    is_for_oldest,
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


@pytest.mark.parametrize(
    ("marks", "fixtures", "group"),
    [
        ({"spark", "chaos"}, (), "chaos"),
        ({"spark"}, ("apicurio",), "spark"),
        ({"java"}, ("tmp_path", "apicurio"), "apicurio"),
        ({"kafka"}, (), "tests/test_x.py"),
        ({"kafka"}, ("kafka3",), "kafka3"),
        ({"embedded"}, ("kafka3",), "tests/test_x.py"),
        ({"kafka"}, ("kafka_version", "versioned_kafka"), "tests/kafka_versions/"),
    ],
)
def test_tests_that_share_something_costly_share_a_worker(marks: set[str], fixtures: tuple[str, ...], group: str) -> None:
    assert group_of(marks, "tests/test_x.py", fixtures) == group


@pytest.mark.slow
def test_pytest_keeps_a_group_on_one_worker(tmp_path: Path) -> None:
    """Not with pytest 9.2 and pytest-xdist 3.8: each worker had a Spark session and clusters of its own then."""
    lines = ["import pytest", "@pytest.mark.xdist_group('one')", "@pytest.mark.parametrize('n', range(8))", "def test(n): pass"]
    (tmp_path / "test_group.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path)]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=100).stdout
    workers = re.findall(r"^\[(gw\d+)\].* PASSED", said, re.MULTILINE)
    assert len(workers) == 8
    assert len(set(workers)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True])
def test_a_run_goes_on_after_a_worker_that_died(tmp_path: Path, last: bool) -> None:
    """As a test that hangs ends its worker. pytest-xdist 3.8 alone waits without an end, and runs that test five times."""
    dies = ["import os", "def test_dies(): os._exit(1)"]
    others = [f"def test_{number}(): pass" for number in range(3)]
    for name, lines in {"a": others, "b": [*others, *dies] if last else [*dies, *others], "c": others[:1]}.items():
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


def test_jobs_have_a_worker_and_the_oldest_pyspark_has_two() -> None:
    assert group_of({"spark", "kafka"}, "tests/jobs/test_x.py") == "tests/jobs/"
    assert {group_of({"spark", "embedded"}, file) for file in (*SECOND_HALF, "tests/spark/test_x.py")} == {"spark", HALF}
    assert {group_of({"spark", "kafka"}, file) for file in SECOND_HALF} == {"spark"}
    assert [file for file in SECOND_HALF if not (ROOT / file).exists()] == []


def test_one_version_of_kafka_follows_the_other(request: pytest.FixtureRequest) -> None:
    """Each starts a cluster, and the next one ends it. Looks at the tests of this run, in their order."""
    calls: list[Any] = [item for item in request.session.items if item.nodeid.startswith("tests/kafka_versions/")]
    parameters = [item.callspec.params for item in calls if hasattr(item, "callspec")]
    versions = [each["kafka_version"] for each in parameters if "kafka_version" in each]
    assert [version for version, _ in groupby(versions)] == sorted(set(versions))


@pytest.mark.parametrize("place", NO_SECOND_TRY)
def test_a_test_of_lost_and_doubled_rows_fails_at_once(place: str, request: pytest.FixtureRequest) -> None:
    assert (ROOT / place).exists()
    reruns = [item.get_closest_marker("flaky") for item in request.config.stash[COLLECTED] if item.nodeid.startswith(place)]
    assert [mark for mark in reruns if mark is None or mark.kwargs != {"reruns": 0}] == []


@pytest.mark.parametrize("folder", ["tests/kafka_versions/", "tests/kafka_security/"])
@pytest.mark.parametrize("mark", ["kafka", "spark"])
def test_tests_that_share_a_folders_clusters_share_a_worker(mark: str, folder: str) -> None:
    assert group_of({mark}, f"{folder}test_x.py") == folder


@pytest.mark.parametrize(
    ("marks", "file", "is_for"),
    [
        ({"spark", "embedded"}, "tests/spark/test_x.py", True),
        ({"spark", "kafka"}, "tests/spark/test_x.py", False),
        ({"spark", "embedded", "chaos"}, "tests/spark/test_x.py", False),
        ({"embedded"}, "tests/spark/test_x.py", False),
        # Nothing runs these with the oldest pyspark.
        ({"spark", "embedded"}, "tests/jobs/test_x.py", False),
    ],
)
def test_only_what_runs_with_the_oldest_pyspark_is_left_out_of_the_run_with_the_newest(
    marks: set[str], file: str, is_for: bool
) -> None:
    assert is_for_oldest(marks, file) is is_for


def test_what_make_test_all_leaves_out_of_one_run_is_in_the_other() -> None:
    recipe = subprocess.run(
        ["make", "--dry-run", "test-all"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    ).stdout
    runs = [line for line in recipe.splitlines() if "--tier=all " in line]
    selected = [re.findall(r"tests/\S+|-m \"[^\"]+\"", run) for run in runs]
    assert selected == [['-m "not oldest"'], ["tests/spark", '-m "not kafka"']]


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
    assert [name for name, each in marks.items() if len(each) > 1] == []  # a test and its parameter would give two reasons
    assert [item.nodeid for items in without.values() for item in items if not marks[item.nodeid]] == []
    assert [name for name, each in marks.items() if not all(mark.args and mark.args[0] for mark in each)] == []


@pytest.mark.parametrize(("target", "tier"), [("test-quick", "quick"), ("test", "test"), ("test-all", "all")])
def test_make_has_a_target_for_each_tier(target: str, tier: str) -> None:
    recipe = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    ).stdout
    assert f"--tier={tier} " in recipe
