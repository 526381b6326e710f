"""What a class named in an option becomes, and what is said where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.producer.base.plugins import plugin
from tests.every import every
from tests.producer.recording_interceptors import Recording, Unmade

HERE = "tests.producer.recording_interceptors"


def test_a_name_and_a_class_are_made_and_an_object_is_itself() -> None:
    made = Recording()
    assert plugin(made, "o") is made
    assert isinstance(plugin(Recording, "o"), Recording)
    assert isinstance(plugin(f"{HERE}.Recording", "o"), Recording)
    assert plugin(Recording, "o") is not plugin(Recording, "o")


@every(
    "value, text",
    [
        ("Recording", "'Recording' is neither a known name nor a dotted name: write package.module.Class"),
        ("", "'' is neither a known name"),
        ("no_such_package.Class", "no module named 'no_such_package'; it must be installed where the producer runs"),
        ("tests.no_such_module.Class", "no module named 'tests.no_such_module'"),
        (f"{HERE}.Nobody", f"module {HERE} has no class Nobody"),
        (f"{HERE}.Recording.name", "no module named"),
        (f"{HERE}.threading", "is module, not a class"),
        (".Class", "'.Class' is neither a known name nor a dotted name"),
        (Unmade, r"Unmade\(\) failed: RuntimeError: no licence"),
    ],
)
def test_what_cannot_be_had_is_said_with_the_options_name(value: object, text: str) -> None:
    with pytest.raises(OptionError, match=text) as raised:
        plugin(value, "some.option")
    assert str(raised.value).startswith("[OPTION] option some.option: ")
    assert raised.value.facts == {"option": "some.option"}


def test_a_module_that_fails_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks_at_import.py").write_text("raise RuntimeError('half installed')")
    (tmp_path / "needs_another.py").write_text("import another_that_is_not_here")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match="module breaks_at_import cannot be imported: RuntimeError: half installed"):
        plugin("breaks_at_import.Class", "o")
    with pytest.raises(OptionError, match="no module named 'another_that_is_not_here'"):
        plugin("needs_another.Class", "o")
