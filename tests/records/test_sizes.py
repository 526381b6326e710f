"""Upper bounds are Java's, row by row, and tighter where the caller knows more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encoder import encode_records, size_upper_bounds
from tests.every import every
from tests.examples import examples
from tests.records.tables import Table, header_column, tables

# DefaultRecord.recordSizeUpperBound: 21 for length, attributes, timestamp and offset, then each field with its own length.
JAVA: list[tuple[bytes | None, bytes | None, int]] = [
    (None, None, 21 + 1 + 1 + 1),
    (b"", b"", 21 + 1 + 1 + 1),
    (b"k" * 10, b"v" * 63, 21 + 1 + 10 + 1 + 63 + 1),
    (b"k" * 10, b"v" * 64, 21 + 1 + 10 + 2 + 64 + 1),
    (b"k" * 64, b"v" * 8191, 21 + 2 + 64 + 2 + 8191 + 1),
    (None, b"v" * 8192, 21 + 1 + 3 + 8192 + 1),
]


def test_bounds_are_javas() -> None:
    columns = RecordColumns(
        len(JAVA), key=pa.array([key for key, _, _ in JAVA], pa.binary()), value=pa.array([value for _, value, _ in JAVA])
    )
    assert size_upper_bounds(columns).tolist() == [bound for _, _, bound in JAVA]


@pytest.mark.parametrize("large", [False, True])
def test_headers_count_with_their_own_lengths(large: bool) -> None:
    rows = [(), None, (("ä", b"12"),), (("", None), ("k" * 64, b"v" * 64))]
    bounds = size_upper_bounds(RecordColumns(4, headers=header_column(rows, large, before=3)))
    assert bounds.tolist() == [24, 24, 24 + 1 + 2 + 1 + 2, 24 + 2 + 2 + 64 + 2 + 64]


def test_a_slice_has_the_bounds_of_its_rows() -> None:
    columns = RecordColumns(3, value=pa.array([b"a", b"bb", b"ccc"]), headers=header_column([None, (("k", b"v"),), None], False))
    assert size_upper_bounds(columns.slice(1, 2)).tolist() == size_upper_bounds(columns).tolist()[1:]


def test_no_rows_have_no_bounds() -> None:
    empty = RecordColumns(0, value=pa.array([], pa.string()), headers=header_column([], False))
    assert size_upper_bounds(empty).tolist() == []


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(*[st.none() | st.sampled_from([0, 1, 40, 62, 63, 64, 8191, 8192])] * 2), min_size=1, max_size=6))
def test_each_row_has_the_bound_that_it_has_alone(lengths: list[tuple[int | None, int | None]]) -> None:
    key, value = (pa.array([None if n is None else bytes(n) for n in part], pa.binary()) for part in zip(*lengths, strict=True))
    columns = RecordColumns(len(lengths), key=key, value=value)
    together = size_upper_bounds(columns, timestamp_range=10, max_offset_delta=100)
    alone = [size_upper_bounds(columns.slice(row, 1), timestamp_range=10, max_offset_delta=100)[0] for row in range(len(lengths))]
    assert together.tolist() == alone


@settings(max_examples=examples(150), deadline=None)
@given(tables(st.integers(-64, 63) | st.integers(-500, 500)))
def test_known_ranges_give_bounds_that_no_record_passes_and_that_are_never_looser(table: Table) -> None:
    reach = 0 if table.timestamp_deltas is None else int(np.abs(table.timestamp_deltas).max(initial=0))
    last = int(table.offset_deltas.max(initial=0))
    tight = size_upper_bounds(table.columns, timestamp_range=reach, max_offset_delta=last)
    sizes = np.diff(encode_records(table.columns, table.order, table.offset_deltas, table.timestamp_deltas).offsets)
    assert (sizes <= (tight if table.order is None else tight[table.order])).all()
    assert (tight <= size_upper_bounds(table.columns)).all()


@every("reach", [0, 63, 64, 8191, 8192, 100_000, 2**40])
def test_a_lone_record_of_known_ranges_is_bounded_exactly(reach: int) -> None:
    columns = RecordColumns(1, key=pa.array([b"k" * 10]), value=pa.array([b"v" * 100]))
    encoded = encode_records(columns, None, np.array([5000], np.int32), np.array([reach]))
    assert size_upper_bounds(columns, timestamp_range=reach, max_offset_delta=8000).tolist() == [len(encoded.data)]
