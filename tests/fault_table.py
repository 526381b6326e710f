"""Makes the table of faults in tests/README.md of the marks of tests: `python -m tests.fault_table`, which `make docs` runs.

With `--check` it changes nothing, and fails if the table is out of date. It reads the sources of tests, which takes a moment, and
does not collect them, which takes half a minute.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.fault_lines import AREAS, ONLY_IN_ALL, Area

TESTS: Final = Path(__file__).parent
README: Final = TESTS / "README.md"
BEGIN: Final = "<!-- made from the marks of tests by `make docs` -->\n"
END: Final = "<!-- end -->"

_MARK: Final = "mark.fault("
_KIND: Final = "broker_kind"
"""The fixture by which a test runs on real Kafka as well."""
_PLUGIN: Final = "kafka/fixtures.py"
_REAL: Final = ("mark.kafka", "only_real_kafka", "only_versions")


@dataclass(frozen=True)
class MarkedTest:
    """A test with the mark of a fault. file: below tests/. on_kafka: whether a run of it has a real Kafka."""

    file: str
    name: str
    area: str
    line: str
    on_kafka: bool


class FaultMarkError(Exception):
    """A mark names no line, or a line has no test."""


# Reading


def marked_tests(folder: Path = TESTS) -> list[MarkedTest]:
    """Returns the marked tests in the order of files and lines. Raises FaultMarkError for a mark without two literal texts."""
    found: list[MarkedTest] = []
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if _MARK in text:
            found += _marked(path, ast.parse(text), folder)
    return found


def _marked(path: Path, module: ast.Module, folder: Path) -> Iterator[MarkedTest]:
    file = path.relative_to(folder).as_posix()
    of_module = " ".join(ast.unparse(each) for each in module.body if isinstance(each, ast.Assign) and _is_pytestmark(each))
    scopes = _scopes(path, folder)
    for test in (each for each in ast.walk(module) if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")):
        marks = " ".join([of_module, *map(ast.unparse, test.decorator_list)])
        on_kafka = any(real in marks for real in _REAL) or _reaches_kafka(_arguments(test), scopes)
        for area, line in (mark for decorator in test.decorator_list for mark in _faults(decorator, file)):
            yield MarkedTest(file, test.name.removeprefix("test_"), area, line, on_kafka)


def _is_pytestmark(assign: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in assign.targets)


def _faults(decorator: ast.expr, file: str) -> Iterator[tuple[str, str]]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
        match decorator.args:
            case [ast.Constant(value=str(area)), ast.Constant(value=str(line))]:
                yield area, line
            case _:
                raise FaultMarkError(
                    f"{file}, line {decorator.lineno}: the mark `fault` takes an area and a line, as literal texts"
                )


# Which fixtures a test has, as pytest finds them: in its file, in the conftest.py of its folders, in plugins.


@dataclass(frozen=True)
class _Fixture:
    arguments: tuple[str, ...]
    is_real: bool


def _scopes(path: Path, folder: Path) -> list[Mapping[str, _Fixture]]:
    """Returns the fixtures that a file sees, the nearest first."""
    above = [parent / "conftest.py" for parent in path.parents if parent == folder or folder in parent.parents]
    files = [path, *above, folder / _PLUGIN]
    return [_fixtures(file) for file in files if file.exists()]


@cache
def _fixtures(path: Path) -> Mapping[str, _Fixture]:
    made: dict[str, _Fixture] = {}
    for each in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(each, ast.FunctionDef) and each.decorator_list:
            decorators = " ".join(map(ast.unparse, each.decorator_list))
            if "fixture" in decorators:
                made[each.name] = _Fixture(_arguments(each), any(real in decorators for real in _REAL))
    return made


def _arguments(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(each.arg for each in (*function.args.args, *function.args.kwonlyargs))


def _reaches_kafka(names: tuple[str, ...], scopes: list[Mapping[str, _Fixture]], asker: str = "") -> bool:
    """Returns whether one of these fixtures uses real Kafka. A fixture that asks for its own name gets that of an outer scope."""
    for name in names:
        if name == _KIND:
            return True
        depths = [depth for depth, scope in enumerate(scopes) if name in scope]
        if name == asker:
            depths = depths[1:]
        if depths:
            fixture = scopes[depths[0]][name]
            inner = scopes[depths[0] :]
            if fixture.is_real or _reaches_kafka(fixture.arguments, inner, name):
                return True
    return False


# Writing


def table(tests: list[MarkedTest], areas: Mapping[str, Area] = AREAS) -> str:
    """Returns the table. Raises FaultMarkError if a mark names no line of `areas`, or a line has no test."""
    wanted = {(area, line) for area, of in areas.items() for line in of.lines}
    for test in tests:
        if (test.area, test.line) not in wanted:
            raise FaultMarkError(f"{test.file}, {test.name}: tests/fault_lines.py has no line ({test.area!r}, {test.line!r})")
    rows = ["| what | test |", "| --- | --- |"]
    for area, of in areas.items():
        rows.append(f"| **{of.title}** | |")
        for line in of.lines:
            own = [test for test in tests if (test.area, test.line) == (area, line)]
            if not own:
                raise FaultMarkError(f"no test has the mark fault({area!r}, {line!r})")
            only = f" (only in `make test-all`: {ONLY_IN_ALL[line]})" if line in ONLY_IN_ALL else ""
            rows.append(f"| {line}{only} | {_cell(own)} |")
    return "\n".join(rows) + "\n"


def _cell(tests: list[MarkedTest]) -> str:
    by_file: dict[str, list[str]] = {}
    for test in tests:
        said = test.name.replace("_", " ") + (" (K)" if test.on_kafka else "")
        by_file.setdefault(test.file, []).append(said)
    return "; ".join(f"`{file}`: {', '.join(names)}" for file, names in by_file.items())


def with_table(page: str, made: str) -> str:
    """Returns a page with its table replaced."""
    before, found, rest = page.partition(BEGIN)
    if not found or END not in rest:
        raise FaultMarkError("tests/README.md has no place for the table of faults")
    return f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> int:
    """Writes the table, or with `--check` only compares it. Returns 1 if it is out of date."""
    page = README.read_text(encoding="utf-8")
    try:
        made = with_table(page, table(marked_tests()))
    except FaultMarkError as error:
        print(error, file=sys.stderr)
        return 1
    if made == page:
        return 0
    check = arguments == ["--check"]
    print("tests/README.md is out of date: run `make docs`" if check else "tests/README.md", file=sys.stderr)
    if not check:
        README.write_text(made, encoding="utf-8")
    return int(check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
