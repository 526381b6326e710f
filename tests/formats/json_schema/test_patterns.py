"""Regular expressions of JSON Schema match by Arrow only what Python's and, as far as they differ, JavaScript's match."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.formats.json_schema.json_values import PatternError, translated
from tests.every import every
from tests.examples import examples


def matches(pattern: str, *texts: str) -> list[bool]:
    found: list[bool] = pc.match_substring_regex(pa.array(texts, pa.string()), translated(pattern)).to_pylist()
    return found


def test_differences_between_engines_are_taken_out() -> None:
    assert matches("^a$", "a", "a\n", "ba") == [True, False, False]
    assert matches(r"^\d$", "1", "٣") == [True, False]
    assert matches(r"^\D$", "a", "٣") == [True, False]
    assert matches(r"^\w$", "a", "_", "é") == [True, True, False]
    assert matches(r"^\S$", "a", "\u00a0", "\ufeff", "\x1c") == [True, False, False, False]
    assert matches(r"^[^\s]$", "a", "\u00a0", "\x0b") == [True, False, False]
    assert matches("^.$", "a", "\n", "\r", "\u2028", "日") == [True, False, False, False, True]
    assert matches(r"^[\w.-]+@[^@]{2,}\.(?:de|com)$", "a.b-c@xy.de", "a@xy.org") == [True, False]
    assert matches(r"^[-+*/\]\\^\u00e9\x41]$", "-", "]", "\\", "^", "é", "A", "B") == [True] * 6 + [False]
    assert matches(r"^[+-]\t\.\/$", "-\t./", "+\t./", "x\t./") == [True, True, False]
    assert matches("[a^]", "^") == [True]


@every(
    "pattern",
    [
        "(?=a)",
        "(?i)a",
        "(?<n>a)",
        r"(a)\1",
        r"\bx",
        r"\p{L}",
        r"\W",
        r"[\D]",
        r"[^\w]",
        "[]",
        "[a",
        "(",
        "a)",
        "a**",
        "*",
        "^*",
        "a{2",
        "[[:alpha:]]",
        "[a&&b]",
        "[b-a]",
        r"[\d-z]",
        "[a-c-e]",
        r"\Z",
        r"\z",
        "a{1,2}{3}",
        "}",
        "]",
        "a++",
        "\\",
        r"\ud83d",
        "a{9999}",
    ],
)
def test_what_engines_do_not_share_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        translated(pattern)


PIECES = ["a", "b", "é", ".", r"\d", r"\D", r"\w", r"\s", r"\S", r"\.", "[a-c]", "[^a]", r"[^\d\s]", r"[\w-]", "[-x]", "[0-9_.+]"]
TEXT = st.text(st.sampled_from("aAbcé1٣ \n\r\t\x0b\u00a0\u2028-._+日\x1c"), max_size=5)


@st.composite
def patterns(draw: st.DrawFn, depth: int = 2) -> str:
    made = ""
    for _ in range(draw(st.integers(1, 4))):
        inner = draw(st.sampled_from(PIECES))
        if depth and draw(st.integers(0, 3)) == 0:
            inner = draw(st.sampled_from(["(", "(?:"])) + draw(patterns(depth - 1)) + ")"
        made += inner + draw(st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"]))
    options = [made, f"^{made}", f"{made}$", f"^{made}$", f"{made}|b"]
    return draw(st.sampled_from(options))


@settings(max_examples=examples(150), deadline=None)  # a busy machine is no failure
@given(pattern=patterns(), texts=st.lists(TEXT, min_size=1, max_size=8))
def test_what_matches_here_matches_in_python(pattern: str, texts: list[str]) -> None:
    ascii_only = [text for text in texts if text.isascii() and text.isprintable()]
    assert matches(pattern, *ascii_only) == [re.search(pattern, text) is not None for text in ascii_only]
    for text, found in zip(texts, matches(pattern, *texts), strict=True):
        assert not found or re.search(pattern, text), text
