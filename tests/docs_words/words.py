"""Finds sentences that are too long and phrases that no technical writer uses, in Markdown and in Python.

`python -m tests.docs_words.words FILE ...` prints what it finds in some files.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

MOST_WORDS = 30

# A regular expression of words, and what to write in its place.
BANNED: Mapping[str, str] = MappingProxyType(
    {
        r"anew": "again",
        r"in vain": "without success",
        r"(?:is|are|was|were|be) had": "exists, is available",
        r"so many": "a number, or 'up to'",
        r"there (?:is|are) (?:told|said)": "the subject first",
        r"(?:is|are|was|were) told (?!to\b|apart\b)": "is reported, is shown",
        r"ends? in an? error": "raises, fails",
        r"in the end": "finally, or nothing",
        r"who(?:so)?ever": "name the reader or the program",
        r"nobody who": "no process that",
        r"for who": "for readers who",
        r"(?:he|him|his|she|her)": "it, they",
        r"(?<!there )is no (?:\w+'s|valid)": "is not a valid ...",
        r"there(?:of|in|upon)|here(?:by|in|of)|where(?:by|upon|of)": "of it, in it, by which",
    }
)
_BANNED = {re.compile(rf"\b{phrase}\b", re.IGNORECASE): instead for phrase, instead in BANNED.items()}

# Rule 5: a docstring begins with a verb in the third person, or with a noun phrase.
_BAD_BEGINNING = re.compile(
    r"(?:About|After|Against|As|At|Before|Below|Between|By|For|From|In|Into|Of|On|Out|Over|That|Through|To|Under|Until|Upon"
    r"|What|Where|Who|Whoever|With|Within|Without)\b"
)

_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|no)\.$", re.IGNORECASE)
_END_OF_SENTENCE = re.compile(r"[.!?]+[\"')\]*_]*\s+")
_END_OF_TEXT = re.compile(r"[.!?:][\"')\]*_]*$")
_GOES_ON = re.compile(r"[,;]$|\b(?:and|or)$")
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_CODE = "CODE"


class Problem(NamedTuple):
    """A sentence that breaks a rule. line: its number in the file, from 1."""

    line: int
    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.line}: {self.rule}: {self.sentence}"


def problems_of_markdown(text: str) -> list[Problem]:
    """Returns the problems of a page, in order. Code is not text: a span of it counts as one word, and a block is left out.

    A heading, a paragraph, an item of a list and a cell of a table each end a sentence, unless it visibly continues in the items
    of a list.
    """
    found = []
    for first, paragraphs in _texts(_MARKDOWN.parse(_without_front_matter(text))):
        for line, sentence in _sentences(paragraphs):
            found += [Problem(first + 1 + line, *rest) for rest in _broken_rules(sentence)]
    return found


def _texts(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Yields the first line, from 0, and the text of each paragraph, together with the items of a list that continue it.

    They do so after a comma or semicolon, and after a paragraph in front of a list that does not even end in a colon.
    """
    first, text = 0, ""
    for place, token in enumerate(tokens):
        if token.type != "inline" or token.map is None:
            continue
        if text:  # the lines between the two stay
            text += "\n" * max(1, token.map[0] - first - text.count("\n"))
        else:
            first = token.map[0]
        text += _plain(token)
        is_paragraph = tokens[place - 1].type == "paragraph_open"
        following = tokens[place + 2].type if place + 2 < len(tokens) else ""
        introduces = following in ("bullet_list_open", "ordered_list_open") and not _END_OF_TEXT.search(text)
        if not is_paragraph or not (introduces or _GOES_ON.search(text)):
            yield first, text
            text = ""
    if text:
        yield first, text


def problems_of_python(source: str) -> list[Problem]:
    """Returns the banned phrases in a module's docstrings and texts, and the docstrings with a bad beginning."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"`[^`]*`", _CODE, node.value)
            for line, sentence in _sentences(text):
                found += [Problem(node.lineno + line, *rest) for rest in _banned_phrases(sentence)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            if _BAD_BEGINNING.match(docstring):
                line = 1 if isinstance(node, ast.Module) else node.lineno
                rule = "the docstring begins with neither a verb nor a noun"
                found.append(Problem(line, rule, docstring.splitlines()[0]))
    return sorted(found)


def _without_front_matter(text: str) -> str:
    """Returns the page with empty lines in place of the settings at its top, so that line numbers stay."""
    top = re.match(r"---\n.*?\n---\n", text, re.DOTALL)
    return "\n" * top[0].count("\n") + text[top.end() :] if top else text


def _plain(token: Token) -> str:
    """Returns the words of a paragraph, with its line ends. Code is one word."""
    parts = []
    for child in token.children or ():
        if child.type == "text":
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif child.type == "code_inline":
            parts.append(_CODE)
    return "".join(parts)


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yields each sentence with the number of line ends before it."""
    start = 0
    ends = [found.end() for found in _END_OF_SENTENCE.finditer(text) if not _ABBREVIATION.search(text[: found.start() + 1])]
    for end in [*ends, len(text)]:
        sentence = text[start:end]
        if sentence.strip():
            blank = len(sentence) - len(sentence.lstrip())
            yield text.count("\n", 0, start + blank), " ".join(sentence.split())
        start = end


def _broken_rules(sentence: str) -> Iterator[tuple[str, str]]:
    words = sum(any(map(str.isalnum, word)) for word in sentence.split())
    if words > MOST_WORDS:
        yield f"{words} words, at most {MOST_WORDS}", sentence
    yield from _banned_phrases(sentence)


def _banned_phrases(sentence: str) -> Iterator[tuple[str, str]]:
    for phrase, instead in _BANNED.items():
        found = phrase.search(sentence)
        if found is not None:
            yield f"'{found[0]}', write {instead}", sentence


def main(names: list[str]) -> None:
    """Prints the problems of files."""
    for name in names:
        text = Path(name).read_text(encoding="utf-8")
        for problem in problems_of_python(text) if name.endswith(".py") else problems_of_markdown(text):
            print(f"{name}:{problem}")


if __name__ == "__main__":
    main(sys.argv[1:])
