"""Fixed headers are the same bytes as those headers at the end of each row's own list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.columns import FixedHeaders, RecordColumns, concatenated, copied
from spark_kafka_sink.records.encoder import encode_records, size_upper_bounds
from tests.examples import examples
from tests.records.making import HEADERS, header_rows

Rows = list[tuple[tuple[str, bytes | None], ...] | None]

header = st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=70))
fixed_headers = st.integers(1, 70).flatmap(
    lambda count: st.lists(header, min_size=1, max_size=3).map(lambda some: (tuple(some) * count)[:count])
)
rows_of_headers = st.lists(st.none() | st.lists(header, max_size=3).map(tuple), min_size=1, max_size=20)


def columns(headers: Rows, fixed: FixedHeaders, *, has_column: bool = True) -> RecordColumns:
    values = pa.array([b"%d" % row for row in range(len(headers))])
    column = pa.array(header_rows(headers), HEADERS) if has_column else None
    return RecordColumns(len(headers), value=values, headers=column, fixed_headers=fixed)


def encoded(records: RecordColumns, order: list[int] | None = None) -> tuple[bytes, list[int]]:
    rows = records.num_records if order is None else len(order)
    found = encode_records(records, None if order is None else np.array(order), np.arange(rows, dtype=np.int32), None)
    return bytes(found.data), found.offsets.tolist()


@settings(deadline=None, max_examples=examples(50))
@given(rows_of_headers, fixed_headers, st.data())
def test_records_and_their_sizes_are_those_of_a_column_with_the_same_headers(
    headers: Rows, fixed: FixedHeaders, data: st.DataObject
) -> None:
    both = columns(headers, fixed)
    spelled_out = columns([(own or ()) + fixed for own in headers], ())
    order = data.draw(st.none() | st.lists(st.integers(0, len(headers) - 1), min_size=1))

    assert encoded(both, order) == encoded(spelled_out, order)
    assert size_upper_bounds(both).tolist() == size_upper_bounds(spelled_out).tolist()


@settings(deadline=None, max_examples=examples(50))
@given(st.integers(1, 30), fixed_headers)
def test_rows_without_a_column_of_headers_have_the_fixed_ones(count: int, fixed: FixedHeaders) -> None:
    alone = columns([None] * count, fixed, has_column=False)
    spelled_out = columns([fixed] * count, ())

    assert encoded(alone) == encoded(spelled_out)
    assert size_upper_bounds(alone).tolist() == size_upper_bounds(spelled_out).tolist()


@pytest.mark.parametrize("has_column", [True, False])
def test_parts_of_the_rows_keep_them(has_column: bool) -> None:
    fixed = (("a", b"1"),)
    whole = columns([None, (("own", b"2"),), ()], fixed, has_column=has_column)
    parts = [whole.slice(0, 2), whole.slice(2, 1), copied(whole), whole.filter(np.array([True, False, True]))]

    assert {part.fixed_headers for part in (*parts, concatenated(parts[:2]))} == {fixed}
    assert encoded(concatenated(parts[:2])) == encoded(whole)


def test_rows_with_other_fixed_headers_are_not_alike() -> None:
    assert columns([None], (("a", b"1"),)).is_like(columns([None], (("a", b"1"),)))
    assert not columns([None], (("a", b"1"),)).is_like(columns([None], (("a", b"2"),)))
