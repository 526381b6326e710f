"""The tiers of the tests: what each of `make test-quick`, `make test` and `make test-all` runs.

Every test is in `all`. `--tier` leaves out of a run what the tier does not have; without it pytest runs what it is told to.

| tier | has | leaves out |
| --- | --- | --- |
| quick | what runs in a moment on embedded brokers | what needs Java, what is `slow`, `NOT_QUICK`, and what `test` leaves out |
| test | each behaviour on one kind of broker | what is `whole`; `PLACES_OF_ALL`; the embedded run of what real Kafka judges |
| all | everything | nothing |

The models of the producer go through 1,000 random histories each, and through fewer in the two smaller tiers.

With pytest-xdist each group of tests stays on one worker, so that it shares one Spark, or one set of Java brokers. The groups
that take longest start first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
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
NOT_QUICK: Final = (
    "tests/cli/",
    "tests/exactly_once/",
    "tests/exporters/",
    "tests/faults/",
    "tests/producer/metrics/",
    "tests/formats/avro/",
    "tests/formats/json_schema/",
    "tests/formats/protobuf/",
    "tests/security/sasl/",
    "tests/spark/",
    "tests/verify/",
)
"""Folders that `make test-quick` does not collect: two thirds of the time of all that needs no Java."""

PLACES_OF_ALL: Final[Mapping[str, str]] = {
    "tests/benchmarks/": "no user runs the benchmarks",
    "tests/broker/as_kafka/test_configs.py": "administration; reads and writes stay",
    "tests/broker/as_kafka/test_rights.py": "administration; reads and writes stay",
    "tests/broker/as_kafka/test_topics.py": "administration; reads and writes stay",
    "tests/broker/as_kafka/test_users.py": "administration; reads and writes stay",
    "tests/broker/cluster/": "a part of the embedded broker, of which clients see the whole",
    "tests/broker/compat/": "Java's tools and older clients; groups and transactions of confluent-kafka stay",
    "tests/broker/group/": "a part of the embedded broker, of which clients see the whole",
    "tests/broker/handlers/": "a part of the embedded broker, of which clients see the whole",
    "tests/broker/log/": "a part of the embedded broker, of which clients see the whole",
    "tests/broker/network/": "a part of the embedded broker, of which clients see the whole",
    "tests/broker/sasl/": "a part of the embedded broker, of which clients see the whole",
    "tests/broker/test_acl.py": "rights; tests/kafka_security has them on real Kafka",
    "tests/broker/test_admin_clients.py": "administration",
    "tests/broker/test_client_metrics.py": "a part of the embedded broker",
    "tests/broker/registry/test_embedded_registry.py": "the stand-in and Apicurio judge the client in tests/registry",
    "tests/broker/test_error_responses.py": "a table of the embedded broker",
    "tests/broker/test_fuzzer.py": "random frames; fixed ones stay in test_hostile_bytes.py",
    "tests/broker/test_kafka_apis.py": "a table of the embedded broker",
    "tests/broker/test_kafka_release.py": "older releases that the embedded broker plays",
    "tests/broker/test_readme.py": "words of a page",
    "tests/broker/test_sasl_clients.py": "logins of other clients; tests/client logs in to the embedded broker",
    "tests/broker/test_secure_clients.py": "logins of other clients; tests/client logs in to the embedded broker",
    "tests/broker/test_server_properties.py": "settings of the embedded broker",
    "tests/broker/test_standard_authorizer.py": "rights; tests/kafka_security has them on real Kafka",
    "tests/broker/test_timer.py": "a part of the embedded broker",
    "tests/broker/transaction/": "a part of the embedded broker; tests/faults runs its transactions",
    "tests/docs/": "`make docs CHECK=1`, which CI runs, finds stale pages and broken links",
    "tests/docs_words/": "words of pages",
    "tests/fuzz/": "the decoders that are fuzzed have their own tests of hostile bytes",
    "tests/package/": "contents of the wheel, which change with pyproject.toml only",
    "tests/spark_yarn/": "YARN, a packed environment and ten minutes; tests/spark has each way to write, tests/faults each kill",
    "tests/test_design.py": "DESIGN.md names files that exist",
    "tests/test_fault_table.py": "the table in tests/README.md, which `make docs CHECK=1` compares",
    "tests/test_project.py": "Makefile, compose file and workflows",
}
"""Files and folders that only `make test-all` collects, and why."""

# Kills take both cores for minutes, and all of Spark's other tests share one session. The rest follows file by file.
_CHAOS, _SPARK, _KAFKA = "chaos", "spark", "kafka"
# The tests of a folder share clusters, one of each version or the secure one; jobs run in a process with a Spark of their own,
# those of Spark Connect share its server, and those of YARN its cluster.
_VERSIONS: Final = "tests/kafka_versions/"
_FOLDERS: Final = ("tests/spark_yarn/", _VERSIONS, "tests/kafka_security/", "tests/jobs/", "tests/spark_connect/")
# What takes long to start, with the group whose tests share it: three brokers in Java take 7 seconds, and a schema registry 10.
# Tests with Spark use the registry as well.
_COSTLY_FIXTURES: Final = {"apicurio": _SPARK, "kafka3": "kafka3"}
_GROUPS: Final = (_CHAOS, _SPARK, _KAFKA, *_FOLDERS, "kafka3")
"""The groups that span files, those that take longest first."""
_PARAMETER_OF_VERSIONS: Final = "kafka_version"
# The Makefile runs this folder with each pyspark.
_SPARKS_OWN: Final = "tests/spark/"
OLDEST: Final = "oldest"

BUDGETS: Final[Mapping[str, float]] = {
    "tests": 75,
    "tests/broker": 45,
    "tests/cli": 65,
    "tests/client": 38,
    "tests/exactly_once": 210,
    "tests/exporters": 45,
    "tests/formats": 60,
    "tests/faults": 330,
    "tests/jobs": 80,
    "tests/kafka": 15,
    "tests/kafka_security": 70,
    "tests/kafka_versions": 60,
    "tests/network": 20,
    "tests/options": 10,
    "tests/producer": 170,
    "tests/protocol": 30,
    "tests/records": 45,
    "tests/reports": 10,
    "tests/registry": 35,
    "tests/security": 35,
    "tests/spark": 400,
    "tests/spark_connect": 75,
    "tests/verify": 25,
}
"""What the tests of a folder may take in `make test` with the newest pyspark, in seconds of all workers."""


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
    if _CHAOS in marks:
        return _CHAOS
    if (folder := next((name for name in _FOLDERS if file.startswith(name)), None)) is not None:
        return folder
    if _SPARK in marks:
        return _SPARK
    costly = next((group for name, group in _COSTLY_FIXTURES.items() if name in fixtures), None)
    if costly is not None and {"java", _KAFKA} & set(marks):
        return costly
    return _KAFKA if _KAFKA in marks else file


def is_for_oldest(marks: Collection[str], file: str) -> bool:
    """Returns whether a test is run with the oldest pyspark, and so is left out of the run with the newest.

    Spark's own tests run on real Kafka with the newest.
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
PATIENT_PROFILE: Final = "patient"
# Of a property, and of 100 of those that name a number themselves (tests/examples.py).
_EXAMPLES: Final = {Tier.QUICK: 10, Tier.TEST: 15, Tier.ALL: 100}
# Of a model, each of which is a run of its own.
_HISTORIES: Final = {Tier.QUICK: 30, Tier.TEST: 40, Tier.ALL: 1000}


def pytest_configure(config: pytest.Config) -> None:
    """Says how many histories there are, before the first module of tests asks, and names the mark that nobody writes."""
    config.addinivalue_line("markers", f"{OLDEST}: runs with the oldest pyspark instead of the newest; set by tests/tiers.py")
    # Hypothesis's own deadline of 200 ms is wall time, which a busy machine exceeds. What hangs is ended by pytest-timeout.
    tier = Tier(config.getoption("tier") or Tier.ALL)
    settings.register_profile(PATIENT_PROFILE, deadline=None, max_examples=_EXAMPLES[tier])
    settings.load_profile(PATIENT_PROFILE)
    settings.register_profile(HISTORIES_PROFILE, max_examples=_HISTORIES[tier])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=[tier.value for tier in Tier], help="run the tests of one tier: see tests/tiers.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import what only `make test-all` has: each worker of pytest-xdist collects all tests."""
    if config.getoption("tier") in {None, Tier.ALL}:
        return None
    place = collection_path.relative_to(config.rootpath).as_posix() if collection_path.is_relative_to(config.rootpath) else ""
    left_out = {*PLACES_OF_ALL, *(NOT_QUICK if config.getoption("tier") == Tier.QUICK else ())}
    return True if f"{place}/" in left_out or place in left_out else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Names groups before pytest-xdist reads them, and leaves tests out after `-m` did, which may have taken a twin."""
    config.stash[COLLECTED] = tuple(items)
    for item in items:
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
    group = group_of(marks_of(item), item.nodeid.partition("::")[0], getattr(item, "fixturenames", ()))
    version = item.callspec.params.get(_PARAMETER_OF_VERSIONS, "") if group == _VERSIONS and hasattr(item, "callspec") else ""
    return _GROUPS.index(group) if group in _GROUPS else len(_GROUPS), version


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
