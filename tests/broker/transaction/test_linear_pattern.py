"""Patterns of ListTransactions: what Python's own expressions find, without their bad cases."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.transaction.linear_pattern import LinearPattern
from spark_kafka_sink.protocol.error_codes import ErrorCode

_atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\.", r"[\d-]"])
_signs = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])


def _sequence(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.builds("{}{}".format, parts, _signs)
    return st.lists(repeated, min_size=1, max_size=3).map("".join)


_patterns = st.recursive(
    _sequence(_atoms),
    lambda inner: _sequence(st.one_of(inner.map("({})".format), st.builds("(?:{}|{})".format, inner, inner))),
    max_leaves=4,
)


@given(_patterns, st.text("abc.1-", max_size=5))
def test_matches_what_the_other_implementation_matches(pattern: str, text: str) -> None:
    assert LinearPattern(pattern).matches(text) is (re.fullmatch(pattern, text, re.ASCII) is not None)


def test_the_whole_name_is_meant_with_and_without_anchors() -> None:
    for pattern in ("sks-.*", "^sks-.*", "sks-.*$", "^sks-.*$"):
        assert LinearPattern(pattern).matches("sks-1")
        assert not LinearPattern(pattern).matches("my-sks-1")
    assert LinearPattern(r"a\$").matches("a$")


def test_a_pattern_that_takes_others_years_takes_no_time() -> None:
    assert not LinearPattern("(a*)*(a|a)*(a+)+b").matches("a" * 10_000)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[a", "*", "a**", "a{3,2}", "a{1001}", "(?=a)", r"\1", r"\Aa", "\\", "[b-a]", "((a{100}){100}){100}",
     "(" * 101 + ")" * 101],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ApiException) as refused:
        LinearPattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
