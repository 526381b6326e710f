"""The tiers of the tests: what each of `make test-quick`, `make test` and `make test-all` runs.

Every test is in `all`. `--tier` leaves out of a run what the tier does not have; without it pytest runs what it is told to.

| tier | has | leaves out |
| --- | --- | --- |
| quick | what runs in a moment on embedded brokers | what needs Java, what is `slow` |
| test | each behaviour on one kind of broker | what is `whole`; the embedded run of what real Kafka judges |
| all | everything | nothing |

The models of the producer go through 1,000 random histories each, and through 150 in the two smaller tiers.

With pytest-xdist each group of tests stays on one worker, so that it shares one Spark, or one set of Java brokers. The groups
that take longest start first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings


class Tier(StrEnum):
    """The names that `--tier` takes, the smallest first."""

    QUICK = "quick"
    TEST = "test"
    ALL = "all"


WHOLE: Final = "whole"
_JAVA: Final = frozenset({"kafka", "spark", "java", "chaos"})
_SLOW: Final = "slow"
# What these do takes a process, a second client or a time-out in most tests: half of the time of all that need no Java.
_SLOW_FOLDERS: Final = ("tests/benchmarks/", "tests/broker/compat/", "tests/cli/", "tests/faults/")

# Kills take both cores for minutes, and all of Spark's other tests share one session. The rest follows file by file.
_SPARK: Final = "spark"
_GROUPS: Final = ("chaos", _SPARK, "java", "kafka")
_SHARED: Final = _GROUPS[:2]
# The tests of a folder share clusters: one of each version; the secure one.
_VERSIONS: Final = "tests/kafka_versions/"
_SECURITY: Final = "tests/kafka_security/"
# What takes long to start, with the group whose tests share it: a schema registry and three brokers in Java 7 seconds each.
_THREE_BROKERS: Final = "kafka3"
_COSTLY_FIXTURES: Final = {"versioned_kafka": _VERSIONS, "apicurio": "apicurio", _THREE_BROKERS: _THREE_BROKERS}
_PARAMETER_OF_VERSIONS: Final = "kafka_version"
NO_SECOND_TRY: Final = (
    "tests/exactly_once/model/",
    "tests/exactly_once/test_committer_faults.py",
    "tests/exactly_once/test_late_rows.py",
    "tests/faults/exactly_once/",
    "tests/faults/test_any_faults.py",
    "tests/faults/test_forgotten_ids.py",
    "tests/faults/test_leader_killed.py",
    "tests/faults/test_pending_additions.py",
    "tests/faults/test_soak.py",
    "tests/faults/test_splitting.py",
    "tests/faults/test_transaction_batches.py",
    "tests/faults/test_transactions_on_kafka.py",
    "tests/kafka_versions/test_exactly_once.py",
    "tests/producer/accumulator/",
    "tests/producer/sender/",
    "tests/producer/test_many_threads.py",
    "tests/spark/test_exactly_once.py",
    "tests/spark_cluster/",
)
"""Tests whose failure may be a lost or a doubled row, which another run would hide. Others that fail run once more (Makefile)."""
_JOBS: Final = "tests/jobs/"
# The Makefile runs this folder with each pyspark.
_SPARKS_OWN: Final = "tests/spark/"
SECOND_HALF: Final = tuple(f"{_SPARKS_OWN}test_{name}.py" for name in ("batch_write", "bad_rows_end_to_end", "exactly_once"))
"""What takes as long as the rest of the folder."""
HALF: Final = "spark, second half"
OLDEST: Final = "oldest"


def tiers_of(marks: Collection[str], *, has_real_twin: bool) -> frozenset[Tier]:
    """Returns the tiers that have a test.

    Args:
        marks: the names of its pytest marks.
        has_real_twin: whether it is the embedded run of a test that real Kafka judges as well.
    """
    tiers = {Tier.ALL}
    if WHOLE in marks:
        return frozenset(tiers)
    if not has_real_twin:
        tiers.add(Tier.TEST)
    if _SLOW not in marks and not _JAVA & set(marks):
        tiers.add(Tier.QUICK)
    return frozenset(tiers)


def group_of(marks: Collection[str], file: str, fixtures: Collection[str] = ()) -> str:
    """Returns the name of the group whose tests share a worker. fixtures: those that the test uses."""
    folder = next((name for name in (_VERSIONS, _SECURITY) if file.startswith(name)), None)
    shared = [name for name in _SHARED if name in marks]
    if shared == [_SPARK]:
        shared = [_group_of_spark(marks, file)]
    costly = [group for name, group in _COSTLY_FIXTURES.items() if name in fixtures and {"java", "kafka"} & set(marks)]
    return folder or next(iter((*shared, *costly)), file)


def _group_of_spark(marks: Collection[str], file: str) -> str:
    """Jobs run in a process with a Spark of their own. With the oldest pyspark a second worker would have nothing to do."""
    if file.startswith(_JOBS):
        return _JOBS
    return HALF if is_for_oldest(marks, file) and file in SECOND_HALF else _SPARK


def is_for_oldest(marks: Collection[str], file: str) -> bool:
    """Returns whether a test is run with the oldest pyspark, and so is left out of the run with the newest.

    Spark's own tests run on real Kafka with the newest. Those of the jobs run with the newest only, on both.
    """
    return file.startswith(_SPARKS_OWN) and {"spark", "embedded"} <= set(marks) and "chaos" not in marks


def whole_but(values: Iterable[object], kept: Collection[object], why: str) -> list[ParameterSet]:
    """Returns the parameters of a test, of which only those in `kept` are in `make test`. why: what the others would cost."""
    marks: Mapping[bool, Sequence[pytest.MarkDecorator]] = {True: [], False: [pytest.mark.whole(why)]}
    return [pytest.param(value, marks=marks[value in kept]) for value in values]


# pytest's hooks

COLLECTED: Final = pytest.StashKey[tuple[pytest.Item, ...]]()
"""What pytest has found before anything was left out."""


HISTORIES_PROFILE: Final = "histories"
_PATIENT_PROFILE: Final = "patient"
_HISTORIES: Final = {Tier.QUICK: 150, Tier.TEST: 150, Tier.ALL: 1000}


def pytest_configure(config: pytest.Config) -> None:
    """Says how many histories there are, before the first module of tests asks, and names the mark that nobody writes."""
    config.addinivalue_line("markers", f"{OLDEST}: runs with the oldest pyspark instead of the newest; set by tests/tiers.py")
    # Hypothesis's own deadline of 200 ms is wall time, which a busy machine exceeds. What hangs is ended by pytest-timeout.
    settings.register_profile(_PATIENT_PROFILE, deadline=None)
    settings.load_profile(_PATIENT_PROFILE)
    settings.register_profile(HISTORIES_PROFILE, max_examples=_HISTORIES[Tier(config.getoption("tier") or Tier.ALL)])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=[tier.value for tier in Tier], help="run the tests of one tier: see tests/tiers.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Names groups before pytest-xdist reads them, and leaves tests out after `-m` did, which may have taken a twin."""
    config.stash[COLLECTED] = tuple(items)
    for item in items:
        if item.nodeid.startswith(_SLOW_FOLDERS):
            item.add_marker(_SLOW)
        if item.nodeid.startswith(NO_SECOND_TRY):
            item.add_marker(pytest.mark.flaky(reruns=0))
        marks, file = marks_of(item), item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group_of(marks, file, getattr(item, "fixturenames", ()))))
        if is_for_oldest(marks, file):
            item.add_marker(OLDEST)
    yield
    # pytest-xdist appends the group to a test's name. With pytest 9.2 that had no effect, and nobody noticed but by the time.
    if getattr(config.option, "loadgroup", False) and items and not items[0].nodeid.endswith(_group_suffix(items[0])):
        raise pytest.UsageError("pytest-xdist does not keep groups of tests together: use other versions of the two")
    tier = config.getoption("tier")
    if tier is not None:
        names = real_twins(items)
        kept, left_out = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            is_in_tier = Tier(tier) in tiers_of(marks_of(item), has_real_twin=twin_name(item) in names)
            (kept if is_in_tier else left_out).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    items.sort(key=_rank)


def _group_suffix(item: pytest.Item) -> str:
    return "@" + "_".join(sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}))


def _rank(item: pytest.Item) -> tuple[int, str]:
    """Sorts groups by how long they take; within one the order stays, but for versions of Kafka, of which one runs at a time.

    pytest has tests together whose parameter has the same index, which is another version in another list of versions.
    """
    marks = marks_of(item)
    group = group_of(marks, item.nodeid.partition("::")[0], getattr(item, "fixturenames", ()))
    if group == _VERSIONS:
        return 2, item.callspec.params.get(_PARAMETER_OF_VERSIONS, "") if hasattr(item, "callspec") else ""
    if group in {_SECURITY, _THREE_BROKERS}:
        return 2, f"{group}"
    return next((rank for rank, name in enumerate(_GROUPS) if name in marks), len(_GROUPS)), ""


def marks_of(item: pytest.Item) -> frozenset[str]:
    return frozenset(mark.name for mark in item.iter_markers())


def twin_name(item: pytest.Item) -> str | None:
    """Returns what the embedded run of a test would have in common with the run on real Kafka; None for any other test."""
    return _name_without(item, "embedded")


def real_twins(items: Iterable[pytest.Item]) -> frozenset[str]:
    """Returns the same of all runs on real Kafka that are not left out of `make test` themselves."""
    names = (_name_without(item, "kafka") for item in items if WHOLE not in marks_of(item))
    return frozenset(name for name in names if name is not None)


def _name_without(item: pytest.Item, kind: str) -> str | None:
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("broker_kind") != kind:
        return None
    parts = callspec.id.split("-")
    parts.remove(kind)
    return f"{item.nodeid.partition('[')[0]}[{'-'.join(parts)}]"
