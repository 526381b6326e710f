"""The pages and the package keep the rules of our English that a machine can count.

The pages that are made from the code fail here too: change the docstring, the option's text or the help text behind the sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs_words.words import problems_of_markdown, problems_of_python

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "spark_kafka_sink").rglob("*.md")])
PACKAGE = ROOT / "spark_kafka_sink"
PARTS = ["*.py", *sorted(f"{folder.name}/**/*.py" for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_short_sentences_without_banned_phrases(page: Path) -> None:
    found = [f"{page.relative_to(ROOT)}:{problem}" for problem in problems_of_markdown(page.read_text(encoding="utf-8"))]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize("part", PARTS)
def test_docstrings_and_messages_have_no_banned_phrases_or_beginnings(part: str) -> None:
    files = sorted(PACKAGE.glob(part))
    found = [
        f"{path.relative_to(ROOT)}:{problem}"
        for path in files
        for problem in problems_of_python(path.read_text(encoding="utf-8"))
    ]
    assert files
    assert not found, "\n".join(["", *found])
