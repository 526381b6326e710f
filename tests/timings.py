"""The report at the end of a run of a tier: where its time went, so that the next slow test is seen when it comes.

Seconds are those of all workers together. A fixture counts for the test that asked for it first.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from _pytest.fixtures import FixtureDef, SubRequest
from _pytest.terminal import TerminalReporter

from tests.tiers import BUDGETS, Tier

SHOWN: Final = 15
_FIXTURE: Final = "fixture"
# Of faster ones there are thousands.
_SLOW_FIXTURE_S: Final = 0.2


def folder_of(test: str) -> str:
    """Returns the folder below tests/ of a test's node id, or tests/ itself."""
    return "/".join(test.partition("::")[0].split("/")[:2]) if test.count("/") > 1 else "tests"


def report(tests: Mapping[str, float], fixtures: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """Returns the lines of the report.

    Args:
        tests: Seconds of each test by node id, with its fixtures.
        fixtures: Seconds of slow fixtures by name.
        budgets: Seconds that the tests of a folder may take; empty for a run that has none.
    """
    folders = defaultdict[str, float](float)
    for test, seconds in tests.items():
        folders[folder_of(test)] += seconds
    lines = [f"slowest {SHOWN} tests:"]
    lines += [f"{seconds:8.1f} s  {test}" for test, seconds in _longest(tests)[:SHOWN]]
    lines += [f"slowest {SHOWN} fixtures:"]
    lines += [f"{seconds:8.1f} s  {name}" for name, seconds in _longest(fixtures)[:SHOWN]]
    lines += [f"by folder, {sum(folders.values()):.0f} s in all:"]
    for folder, seconds in _longest(folders):
        budget = budgets.get(folder)
        lines += [f"{seconds:8.1f} s  {folder}" + (f" (budget {budget:g} s)" if budget is not None else "")]
    lines += [
        f"OVER ITS BUDGET: {folder} took {folders[folder]:.0f} s and may take {budget:g} s (BUDGETS in tests/tiers.py)"
        for folder, budget in budgets.items()
        if folders[folder] > budget
    ]
    return lines


def _longest(durations: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(durations.items(), key=lambda each: -each[1])


class Timings:
    """Collects durations: of fixtures in each worker, of tests in the process that reports. Used by pytest's main thread only."""

    def __init__(self, budgets: Mapping[str, float]) -> None:
        self._budgets = budgets
        self._tests = defaultdict[str, float](float)
        self._fixtures = defaultdict[str, float](float)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: FixtureDef[object], request: SubRequest) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            return (yield)
        finally:
            if (took := time.perf_counter() - begun) > _SLOW_FIXTURE_S:
                # pytest-xdist sends these to the process that reports.
                request.node.session.stash.setdefault(_SLOW_FIXTURES, []).append((fixturedef.argname, took))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            slow = item.session.stash.get(_SLOW_FIXTURES, [])
            item.user_properties.extend((_FIXTURE, each) for each in slow)
            slow.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid.partition("@")[0]] += report.duration
        if report.when == "setup":
            for name, value in report.user_properties:
                if name == _FIXTURE and isinstance(value, tuple | list):
                    self._fixtures[value[0]] += value[1]

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if not self._tests:
            return
        terminalreporter.section("where the time went")
        for line in report(self._tests, self._fixtures, self._budgets):
            terminalreporter.line(line)


_SLOW_FIXTURES: Final = pytest.StashKey[list[tuple[str, float]]]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    tier = config.getoption("tier")
    if tier is not None:
        config.pluginmanager.register(Timings(BUDGETS if tier == Tier.TEST else {}), "timings")
