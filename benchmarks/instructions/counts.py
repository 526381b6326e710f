"""Instruction counts, the committed baseline, and the comparison of both."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

BASELINE: Final = Path(__file__).with_name("baseline.json")
# Functions below this share of a path's count are kept as one number. Native code has 1,000 functions per path.
LEAST_SHARE: Final = 0.002
OTHERS: Final = "(others)"
NAMED: Final = 5


class Counter(StrEnum):
    """What is counted; see the package's docstring."""

    BYTECODE = "bytecode"
    LIBRARIES = "libraries"
    SYSTEM = "system"


TOLERANCES: Final[Mapping[Counter, float]] = {Counter.BYTECODE: 0.03, Counter.LIBRARIES: 0.03, Counter.SYSTEM: 0.06}
"""The share by which a count may change. Two runs of the same code differed by 3.2 % in the system's count of a sender round."""

_LIBRARIES: Final = ("numpy", "pyarrow", "crc32c")
FACTS: Final[Mapping[Counter, Sequence[str]]] = {
    Counter.BYTECODE: ("python", "numpy", "pyarrow"),
    Counter.LIBRARIES: (*_LIBRARIES, "machine", "simd"),
    Counter.SYSTEM: (*_LIBRARIES, "machine", "simd", "build", "libc"),
}
"""The facts about a machine that determine a counter. Counts are compared only if they are the same in the baseline."""

Functions = Mapping[str, int]
Paths = Mapping[str, Functions]
FunctionChange = tuple[str, int, int]
"""A function's name, and its instructions before and after."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one run.

    facts: facts about the machine, by name. paths: instructions by counter, path and function.
    """

    facts: Mapping[str, str]
    paths: Mapping[Counter, Paths]

    def total(self, counter: Counter, path: str) -> int | None:
        functions = self.paths.get(counter, {}).get(path)
        return None if functions is None else sum(functions.values())


def least(runs: Sequence[Counts]) -> Counts:
    """Returns the smallest count of each path. Collisions in the interpreter's caches only add instructions."""

    def smallest(counter: Counter, path: str) -> Functions:
        return min((run.paths[counter][path] for run in runs), key=lambda functions: sum(functions.values()))

    paths = {counter: {path: smallest(counter, path) for path in own} for counter, own in runs[0].paths.items()}
    return Counts(runs[0].facts, paths)


@dataclass(frozen=True, slots=True)
class Change:
    """A path whose count differs from the baseline by more than the tolerance.

    functions: those that changed most. callers: Python functions of the path whose bytecode changed, if native code is counted.
    """

    counter: Counter
    path: str
    before: int
    after: int
    functions: Sequence[FunctionChange]
    callers: Sequence[FunctionChange]

    @property
    def grew(self) -> bool:
        return self.after > self.before

    def __str__(self) -> str:
        verb = "grew" if self.grew else "shrank"
        lines = [f"{self.path}: {self.counter} {verb} by {_percent(self.before, self.after)}: {self.before:,} -> {self.after:,}"]
        lines += _lines(self.functions)
        if self.callers:
            lines += ["  Its bytecode changed in:", *_lines(self.callers)]
        return "\n".join(lines)


def _lines(functions: Sequence[FunctionChange]) -> list[str]:
    width = max((len(name) for name, _, _ in functions), default=0)
    return [f"    {name:{width}}  {before:>10,} -> {after:,}" for name, before, after in functions]


def changes(baseline: Counts, now: Counts) -> list[Change]:
    """Returns the paths that differ from the baseline by more than TOLERANCES allow, with the functions that changed most.

    Skips counters that cannot be compared, and paths that only one of both has.
    """
    found = []
    common = list(_common(baseline, now))
    for counter, path in common:
        before, after = baseline.total(counter, path), now.total(counter, path)
        assert before is not None
        assert after is not None
        if abs(after - before) > TOLERANCES[counter] * before:
            functions = _changed(baseline.paths[counter][path], now.paths[counter][path], grew=after > before)
            callers: list[FunctionChange] = []
            if counter is not Counter.BYTECODE and (Counter.BYTECODE, path) in common:
                callers = _changed(baseline.paths[Counter.BYTECODE][path], now.paths[Counter.BYTECODE][path], grew=None)
            found.append(Change(counter, path, before, after, functions, callers))
    return found


def _changed(before: Functions, after: Functions, *, grew: bool | None) -> list[FunctionChange]:
    """Returns the functions that grew or shrank most; with None, those that changed most in either direction."""
    after = condensed(after, kept=before)
    both = [(name, before.get(name, 0), after.get(name, 0)) for name in {*before, *after} - {OTHERS}]
    rise = {name: abs(new - old) if grew is None else new - old if grew else old - new for name, old, new in both}
    ranked = sorted(both, key=lambda function: (-rise[function[0]], function[0]))
    return [function for function in ranked[:NAMED] if rise[function[0]] > 0]


def _common(baseline: Counts, now: Counts) -> Iterator[tuple[Counter, str]]:
    for counter in Counter:
        if counter in now.paths and counter in baseline.paths and not differing_facts(baseline, now, counter):
            yield from ((counter, path) for path in now.paths[counter] if path in baseline.paths[counter])


def differing_facts(baseline: Counts, now: Counts, counter: Counter) -> list[str]:
    """Returns why a counter cannot be compared, one text for each fact that differs."""
    pairs = [(fact, baseline.facts.get(fact, "none"), now.facts.get(fact, "none")) for fact in FACTS[counter]]
    return [f"{fact} is {ours!r} and was {theirs!r}" for fact, theirs, ours in pairs if theirs != ours]


def unknown_paths(baseline: Counts, now: Counts) -> list[str]:
    """Returns the paths that only one of both has, of the counters that both have."""
    counters = [counter for counter in Counter if counter in now.paths and counter in baseline.paths]
    return sorted({path for counter in counters for path in {*now.paths[counter]} ^ {*baseline.paths[counter]}})


# Text


def table(baseline: Counts | None, now: Counts) -> str:
    """Returns all counts, each with its difference from the baseline if it can be compared."""
    counters = [counter for counter in Counter if counter in now.paths]
    compared = set() if baseline is None else set(_common(baseline, now))
    paths = list(dict.fromkeys(path for counter in counters for path in now.paths[counter]))
    rows = [["path", *counters]]
    for path in paths:
        cells = []
        for counter in counters:
            after = now.total(counter, path)
            before = baseline.total(counter, path) if baseline is not None and (counter, path) in compared else None
            change = "" if before is None or after is None else f" ({_percent(before, after, signed=True)})"
            cells.append("-" if after is None else f"{after:,}{change}")
        rows.append([path, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def spread(runs: Sequence[Counts]) -> str:
    """Returns by how many percent the largest count of each path exceeds the smallest one."""
    lines = []
    for counter in Counter:
        for path in runs[0].paths.get(counter, {}):
            totals = [total for run in runs if (total := run.total(counter, path)) is not None]
            lines.append(f"{counter:9}  {path:30}  {(max(totals) / min(totals) - 1) * 100:.4f} %")
    return "\n".join(lines)


def _percent(before: int, after: int, *, signed: bool = False) -> str:
    change = (after - before) / before * 100
    return f"{change:+.1f} %" if signed else f"{abs(change):.1f} %"


# File


def load(file: Path) -> Counts:
    """Reads a baseline."""
    content = json.loads(file.read_text())
    return Counts(content["facts"], {Counter(name): paths for name, paths in content["instructions"].items()})


def save(counts: Counts, file: Path) -> None:
    """Writes a baseline: one line per function, in order, so that a diff shows what changed."""
    instructions = {
        counter: {path: dict(sorted(condensed(functions).items())) for path, functions in paths.items()}
        for counter, paths in counts.paths.items()
    }
    content = {"facts": dict(sorted(counts.facts.items())), "instructions": instructions}
    file.write_text(json.dumps(content, indent=1) + "\n")


def condensed(functions: Functions, kept: Container[str] = ()) -> dict[str, int]:
    """Returns the functions in `kept` or with at least LEAST_SHARE of all instructions, and the sum of the others."""
    least = LEAST_SHARE * sum(functions.values())
    named = {name: count for name, count in functions.items() if count >= least or name in kept}
    rest = sum(functions.values()) - sum(named.values())
    return named | ({OTHERS: named.get(OTHERS, 0) + rest} if rest else {})
