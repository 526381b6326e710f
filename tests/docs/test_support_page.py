"""docs/support.md claims no version that the tests do not run, and leaves out none that they run."""

from __future__ import annotations

import re

from docs.pages import FOLDER
from tests.kafka.versions import POMS, patch_of


def test_the_versions_that_are_said_to_be_tested_are_those_of_the_tests() -> None:
    page = (FOLDER / "support.md").read_text(encoding="utf-8")
    tested = re.findall(r"^\| (\d+\.\d+\.\d+).* \| tests \|$", page, re.MULTILINE)
    assert sorted(tested) == sorted(patch_of(version) for version in POMS)
