"""The pages and the package keep the rules of our English that a machine can count.

The pages that are made from the code fail here too: change the docstring, the option's text or the help text behind the sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs_words.words import MOST_WORDS, problems_of_markdown, problems_of_python

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "spark_kafka_sink").rglob("*.md")])
PACKAGE = ROOT / "spark_kafka_sink"
PARTS = ["*.py", *sorted(f"{folder.name}/**/*.py" for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())]

LONG = " ".join(["word"] * MOST_WORDS)


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


def test_a_sentence_is_counted_wherever_it_stands() -> None:
    page = f"""---
title: {LONG} word.
---
# {LONG} word

{LONG}. Then one
more {LONG} is too long! Then `a. B` {LONG[5:]}.

1. {LONG[10:]} is
   fine.
   - {LONG} more.

| a | b |
| --- | --- |
| fine | {LONG}, x |

```text
{LONG} word
```
"""
    assert [(one.line, one.rule) for one in problems_of_markdown(page)] == [
        (4, "31 words, at most 30"),
        (6, "36 words, at most 30"),
        (7, "31 words, at most 30"),
        (11, "31 words, at most 30"),
        (15, "31 words, at most 30"),
    ]


def test_a_sentence_may_continue_in_the_items_of_a_list() -> None:
    page = f"""{LONG[5:]}. This happens

- with {LONG[60:]};
- or {LONG[60:]}

after. Items that are facts do not continue:

- {LONG[10:]}
- {LONG[10:]}

{LONG[10:]}:

- {LONG[10:]}
"""
    assert [(one.line, one.rule) for one in problems_of_markdown(page)] == [(1, "40 words, at most 30")]


def test_an_abbreviation_ends_no_sentence() -> None:
    assert len(problems_of_markdown(f"{LONG} e.g. two.")) == 1
    assert problems_of_markdown(f"{LONG}. {LONG}... {LONG}? ({LONG}.) {LONG}") == []


@pytest.mark.parametrize("text", ["Sent anew.", "Read\nin vain", "| a |\n| --- |\n| this ends in an error |", "*So many* ms"])
def test_a_banned_phrase_is_found_in_any_case_and_over_lines(text: str) -> None:
    (found,) = problems_of_markdown(text)
    assert "write" in found.rule


@pytest.mark.parametrize(
    "text",
    ["`anew`", "```\nanew\n```", "```python\nprint('in vain')\n```", "renewed, heard, this, there", "There is no valid source."],
)
def test_code_and_parts_of_words_are_no_phrases(text: str) -> None:
    assert problems_of_markdown(text) == []


def test_docstrings_and_texts_of_python_are_read() -> None:
    source = '''"""Of what it is."""
class A:
    """Something."""
    def f(self):
        """From here.

        Sent anew."""
        raise Error(f"it ends in an error: {self}", "`anew`")
def format_it():
    """Formats it."""
'''
    assert [(one.line, one.rule) for one in problems_of_python(source)] == [
        (1, "the docstring begins with neither a verb nor a noun"),
        (4, "the docstring begins with neither a verb nor a noun"),
        (7, "'anew', write again"),
        (8, "'ends in an error', write raises, fails"),
    ]
