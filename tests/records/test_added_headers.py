"""Headers that only some rows get, against a loop in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.columns import with_headers, without_headers
from tests.examples import examples

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
LARGE = pa.struct([pa.field("key", pa.large_string(), nullable=False), pa.field("value", pa.large_binary())])
ROWS = st.lists(
    st.tuples(st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3), st.booleans()),
    max_size=8,
)
ADDED = (("id", b"\1\2"), ("ü", None))
both_kinds = pytest.mark.parametrize("kind", [pa.list_(PAIR), pa.large_list(LARGE)], ids=["list", "large_list"])


def headers_of(rows: list[tuple[Any, bool]], kind: pa.DataType) -> pa.Array:
    pairs = [None if own is None else [dict(zip(("key", "value"), one, strict=True)) for one in own] for own, _ in rows]
    return pa.array(pairs, kind)


def listed(headers: Any) -> list[tuple[str, bytes | None]]:
    return [(one["key"], one["value"]) for one in headers or ()]


@both_kinds
@pytest.mark.parametrize("count", [0, 1, 2])
@settings(max_examples=examples(100))
@given(rows=ROWS)
def test_some_rows_get_more_headers(kind: pa.DataType, count: int, rows: list[tuple[Any, bool]]) -> None:
    column = headers_of(rows, kind)
    gets = np.array([one for _, one in rows], np.bool_)
    for first in range(min(2, len(rows) + 1)):  # a slice as well
        found = with_headers(column.slice(first), ADDED[:count], gets[first:])
        found.validate(full=True)
        assert found.type == kind
        assert [listed(one) for one in found.to_pylist()] == [
            [*(own or ()), *(ADDED[:count] if more else ())] for own, more in rows[first:]
        ]


def test_rows_without_a_column_of_headers() -> None:
    found = with_headers(None, ADDED[:1], np.array([True, False]))
    assert [listed(one) for one in found.to_pylist()] == [[ADDED[0]], []]


@both_kinds
@settings(max_examples=examples(100))
@given(rows=ROWS, names=st.sets(st.text(max_size=2), min_size=1, max_size=3))
def test_headers_of_some_names_are_removed(kind: pa.DataType, rows: list[tuple[Any, bool]], names: set[str]) -> None:
    column = headers_of(rows, kind)
    for first in range(min(2, len(rows) + 1)):
        found = without_headers(column.slice(first), sorted(names))
        found.validate(full=True)
        assert found.type == kind
        assert [listed(one) for one in found.to_pylist()] == [
            [pair for pair in own or () if pair[0] not in names] for own, _ in rows[first:]
        ]
