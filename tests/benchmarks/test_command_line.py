"""How long and how much is measured, as asked for on the command line or by QUICK=1."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import _parser, _plan
from benchmarks.cells import FULL, QUICK


@pytest.mark.parametrize(("value", "plan"), [("", FULL), ("0", FULL), ("1", QUICK)])
def test_quick_comes_from_the_environment(value: str, plan: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICK", value)
    assert _plan(_parser().parse_args([])) == plan


def test_repeats_asked_for_are_all_made_however_long_they_take() -> None:
    plan = _plan(_parser().parse_args(["--only", "producer-8", "--repeats", "5"]))
    assert (plan.repeats, plan.least_repeats) == (5, 5)


def test_an_unknown_cell_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["--only", "producer-9"])
    assert "producer-8" in capsys.readouterr().err
