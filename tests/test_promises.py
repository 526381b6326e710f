"""The tests that promises.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
NAMED = re.compile(r"([\w/]+\.py)|::(test_\w+)")


def test_each_promise_names_tests_that_exist() -> None:
    missing = []
    for line in (FOLDER / "promises.md").read_text(encoding="utf-8").splitlines():
        text = ""
        for path, name in NAMED.findall(line):
            if path:
                file = FOLDER / path
                text = file.read_text(encoding="utf-8") if file.is_file() else ""
            is_cut = name.endswith("_")  # "test_a_long_..."
            if not text or (name and f"def {name}{'' if is_cut else '('}" not in text):
                missing.append(path or name)
    assert not missing
