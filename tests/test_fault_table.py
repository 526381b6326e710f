"""Each fault has a test, and the table in tests/README.md is what the marks say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fault_table
from tests.fault_lines import AREAS, Area
from tests.fault_table import FaultMarkError, MarkedTest, main, marked_tests, table

ONE = {"memory": Area("Memory", ("the pool is full",))}
CONFTEST = """
@pytest.fixture(params=[1])
def broker_kind(): ...
@pytest.fixture
def query(broker_kind): ...
"""


def test_each_line_has_a_test_and_the_table_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_out_of_date_is_written_unless_it_is_only_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [MarkedTest("test_x.py", "it_waits", area, line, False) for area, of in AREAS.items() for line in of.lines]
    monkeypatch.setattr(fault_table, "marked_tests", lambda: found)
    monkeypatch.setattr(fault_table, "README", page := tmp_path / "README.md")
    page.write_text(f"before\n{fault_table.BEGIN}| old |\n{fault_table.END}\nafter\n")
    assert main(["--check"]) == 1
    assert "out of date: run `make docs`" in capsys.readouterr().err
    assert main([]) == 0
    assert page.read_text() == f"before\n{fault_table.BEGIN}\n{table(found)}\n{fault_table.END}\nafter\n"
    assert main(["--check"]) == 0
    found.pop()
    assert main([]) == 1
    assert "no test has the mark" in capsys.readouterr().err


@pytest.mark.parametrize(("area", "line"), [("memory", "the pool is fool"), ("memoir", "the pool is full")])
def test_a_mark_of_an_unknown_line_is_an_error(area: str, line: str) -> None:
    with pytest.raises(FaultMarkError, match=r"test_x\.py, it_waits: tests/fault_lines\.py has no line"):
        table([MarkedTest("test_x.py", "it_waits", area, line, False)], ONE)


def written(folder: Path, text: str, name: str = "faults/test_memory.py") -> list[MarkedTest]:
    (folder / "conftest.py").write_text(CONFTEST)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return marked_tests(folder)


@pytest.mark.parametrize(
    ("before", "arguments", "on_kafka"),
    [
        ("", "broker_kind", True),
        ("pytestmark = [pytest.mark.kafka]", "", True),
        ("", "unknown", False),
        # A fixture that has the name of an outer one, and uses it, or does not.
        ("@pytest.fixture\ndef query(query): ...", "query", True),
        ("@pytest.fixture\ndef query(embedded): ...", "query", False),
        ("@pytest.fixture\ndef made(*, query): ...", "made", True),
        ("@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.kafka)])\ndef old(): ...", "old", True),
    ],
)
def test_whether_real_kafka_judges_it_is_seen_by_its_fixtures_and_marks(
    tmp_path: Path, before: str, arguments: str, on_kafka: bool
) -> None:
    text = f'{before}\n@pytest.mark.fault("memory", "x")\ndef test_it({arguments}): ...\n'
    (found,) = written(tmp_path, text)
    assert found.on_kafka is on_kafka
