"""No test fails because the machine is slow: no assertion bounds from above how long something took on the clock."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# thread_time and process_time as well: neighbours on the same core make these longer, see tests/limits.py
NOW = r"(?:monotonic|perf_counter|process_time|thread_time|time)(?:_ms|_ns)?\(\)"
UPPER_BOUND = re.compile(rf"^ *assert (?:[^=<>]*{NOW} - \w+[^=<>]*<|.*\b(?:took|elapsed)\w* <)", re.MULTILINE)
EXEMPT = {
    "limits.py": "processor time, compared with that of other work right before",
    "fuzz/run.py": "seconds for what takes less than a millisecond, in `make fuzz` alone",
    "fuzz/hostile_answers.py": "a minute more than a call may take; no time-out ends a call of `make fuzz`",
}


@pytest.mark.parametrize(
    ("line", "is_bound"),
    [
        ("    assert time.monotonic() - begun < 5", True),
        ("    assert took <= 20", True),
        ("    assert time.monotonic() - begun > 5", False),
        ("    assert before <= stamp <= time.time()", False),
    ],
)
def test_an_upper_bound_is_found_and_a_lower_one_is_not(line: str, is_bound: bool) -> None:
    assert bool(UPPER_BOUND.search(line)) is is_bound


def test_no_assertion_bounds_how_long_something_takes() -> None:
    own = Path(__file__).name
    found = {str(path.relative_to(TESTS)): UPPER_BOUND.findall(path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines and path not in {own, *EXEMPT}} == {}
