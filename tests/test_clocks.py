"""No test fails because the machine is slow: no assertion bounds from above how long something took on the clock."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "monotonic_ms", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}
CLOCKS |= {"process_time", "thread_time"}  # neighbours on the same core make these longer, too: see tests/limits.py
TRANSPARENT = {"abs", "float", "int", "max", "min", "round", "sum"}  # whose result is a time if their argument is one
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
KINDS = (ast.Assert, ast.Assign, ast.FunctionDef)
EXEMPT = {
    "fuzz/run.py": "seconds for what takes less than a millisecond, in `make fuzz` alone",
    "fuzz/hostile_answers.py": "a minute more than a call may take; no time-out ends a call of `make fuzz`",
    "spark_cluster/test_executors_come_and_go.py": "writes rows until executors come or go, for at most 150 s",
}
BOUNDS = """
assert time.monotonic() - begun < 5
assert 0.2 < time.perf_counter() - begun <= 5, "late"
assert 5 > abs(stamp - time.time())
assert time.monotonic() < deadline
def measured():
    begun = loop.time()
    return now() - begun
assert measured() <= LIMIT_S
took = now() - begun
assert max(took, 1) < 20
"""
NO_BOUNDS = """
before = time.time()
took = time.time() - before
assert took >= 0.045 and 1 <= took and took != 3
assert before - 1 <= stamp <= time.time()
assert len(client.brokers(time.monotonic() + 30)) < 3
"""


def upper_bounds(source: str) -> list[int]:
    """Returns the lines with assertions that fail if something takes long."""
    if not any(f"{clock}()" in source for clock in CLOCKS):
        return []
    parts, times = [part for part in ast.walk(ast.parse(source)) if isinstance(part, KINDS)], Times()
    for part in parts * 2:  # a name may be used above the line that assigns it
        times.learn(part)
    asserted = (part for node in parts if isinstance(node, ast.Assert) for part in ast.walk(node.test))
    return sorted({part.lineno for part in asserted if isinstance(part, ast.Compare) and times.bounds(part)})


def seen(value: ast.AST) -> Iterator[ast.AST]:
    """Yields the parts of a value, without the arguments of a function whose result is something else."""
    yield value
    if not isinstance(value, ast.Call) or name_of(value) in TRANSPARENT:
        for child in ast.iter_child_nodes(value):
            yield from seen(child)


def name_of(part: ast.AST) -> str:
    """Returns the last name of a variable or of the function that is called."""
    part = part.func if isinstance(part, ast.Call) else part
    return part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""


def is_now(value: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) and not part.args and name_of(part) in CLOCKS for part in seen(value))


class Times:
    """The names in a file that have what a clock showed, or how long something took."""

    def __init__(self) -> None:
        self.shown, self.took = set[str](), set[str]()

    def learn(self, part: ast.AST) -> None:
        if isinstance(part, ast.Assign):
            names = {name_of(name) for target in part.targets for name in ast.walk(target)} - {""}
            self.shown |= names if is_now(part.value) else set()
            self.took |= names if self.is_long(part.value) else set()
        elif isinstance(part, ast.FunctionDef):
            returned = [node.value for node in ast.walk(part) if isinstance(node, ast.Return) and node.value]
            self.took |= {part.name} if any(map(self.is_long, returned)) else set()

    def is_long(self, value: ast.AST) -> bool:
        """Returns whether it is a difference from a time, or has such a difference."""
        taken = [part.right for part in seen(value) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)]
        named = {name_of(part) for each in taken for part in seen(each)} & self.shown
        return bool(named) or any(map(is_now, taken)) or any(name_of(part) in self.took for part in seen(value))

    def bounds(self, part: ast.Compare) -> bool:
        """Returns whether a comparison fails if a time is long."""
        sides = zip(part.ops, [part.left, *part.comparators], part.comparators, strict=False)
        lesser = [left if isinstance(sign, ast.Lt | ast.LtE) else right for sign, left, right in sides if isinstance(sign, ORDER)]
        return any(self.is_long(each) or is_now(each) for each in lesser)


def test_an_upper_bound_is_found_and_a_lower_one_is_not() -> None:
    assert upper_bounds(BOUNDS) == [number for number, line in enumerate(BOUNDS.splitlines(), 1) if "assert" in line]
    assert upper_bounds(NO_BOUNDS) == []


@pytest.mark.slow
def test_no_assertion_bounds_how_long_something_takes() -> None:
    found = {str(path.relative_to(TESTS)): upper_bounds(path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines and path not in EXEMPT} == {}
    assert [path for path in EXEMPT if not found.get(path)] == [], "need not be exempt any more"
