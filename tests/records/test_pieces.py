"""Pieces have the bytes that `encode_records` gives their rows, also when they take the fast path of the common case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records import pieces as module
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encoder import encode_records, size_upper_bounds
from spark_kafka_sink.records.pieces import LAYOUTS, MIN_ROWS, MOST_REACH, USUAL_REACH, Pieces, encode_pieces
from tests.examples import examples

# Where a varint gets another byte, where a value no longer fits into a struct, and where both together do not.
LENGTHS = (0, 1, 4, 9, 10, 11, 12, 13, 62, 63, 64, 100, 8170, 8190)
TYPES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
Lengths = Callable[[int], int | None]


def column(rows: int, length_of: Lengths, kind: pa.DataType, random: Random) -> pa.Array:
    """A slice of a longer array."""
    skipped = random.randrange(4)
    lengths = [length_of(row - skipped) for row in range(rows + skipped + 1)]
    digits = [b"%d" % random.getrandbits(64) for _ in lengths]
    values = [None if length is None else own.ljust(length, b".")[:length] for own, length in zip(digits, lengths, strict=True)]
    return pa.array(values, pa.binary()).cast(kind)[skipped : skipped + rows]


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array | None:
    """Mostly of one length; sometimes with one row that is longer, shorter or null."""
    length = draw(st.sampled_from((None, *LENGTHS)))
    odd_row = draw(st.sampled_from((*[-1] * 8, 0, rows // 2, rows - 1)))
    odd = draw(st.sampled_from((None, 0, 13, (length or 0) + 1)))
    kind = draw(st.sampled_from((None, *TYPES[:2] * 4, *TYPES)))
    random = Random(draw(st.integers(0, 99)))
    return None if kind is None else column(rows, lambda row: odd if row == odd_row else length, kind, random)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[RecordColumns, list[int] | None, Pieces]:
    rows = draw(st.integers(MIN_ROWS, MIN_ROWS + 80) | st.integers(1, MIN_ROWS))
    fixed = draw(st.sampled_from((*[()] * 8, (("name", b"value"),))))
    found = RecordColumns(rows, draw(columns(rows)), draw(columns(rows)), fixed_headers=fixed)
    order = draw(st.none() | st.permutations(range(rows)))
    inner = draw(st.sets(st.integers(1, rows - 1), max_size=5)) if rows > 1 else set[int]()
    starts = np.array([0, *sorted(inner)])
    counts = np.diff([*starts, rows])
    near, far = (0, 1, 20, 63, 90), (0, USUAL_REACH - 50, 8100, MOST_REACH - 100, 2**21 - 30)
    first = st.sampled_from(draw(st.sampled_from((near, near, near, far))))
    each = st.sampled_from((st.just(0), st.integers(0, 63), st.integers(64, 8191), st.integers(-70, 9000)))
    deltas = draw(st.none() | each.flatmap(lambda delta: st.lists(delta, min_size=len(counts), max_size=len(counts))))
    return found, order, Pieces(starts, counts, np.array([draw(first) for _ in counts]), deltas)


@settings(max_examples=examples(200), deadline=None)
@given(inputs())
def test_pieces_have_the_bytes_of_their_rows(given_: tuple[RecordColumns, list[int] | None, Pieces]) -> None:
    rows, wanted, pieces = given_
    order = None if wanted is None else np.array(wanted)
    offset_deltas = np.concatenate([np.arange(n) + first for n, first in zip(pieces.counts, pieces.offset_deltas, strict=True)])
    timestamp_deltas = None if pieces.timestamp_deltas is None else np.repeat(pieces.timestamp_deltas, pieces.counts)
    expected = encode_records(replace(rows), order, offset_deltas, timestamp_deltas)
    for _ in range(2):  # from the second time on, rows can take the fast path
        encoded = encode_pieces(rows, order, pieces)
    bounds = [*pieces.starts, rows.num_records]
    assert [bytes(piece) for piece in encoded.pieces] == [
        bytes(expected.data[expected.offsets[start] : expected.offsets[end]]) for start, end in pairwise(bounds)
    ]
    sizes = np.diff(expected.offsets)
    assert encoded.largest == [int(sizes[start:end].max()) for start, end in pairwise(bounds)]
    assert {(piece.format, piece.ndim) for piece in encoded.pieces} == {("B", 1)}
    bound = size_upper_bounds(rows, timestamp_range=2**33, max_offset_delta=2**21)
    assert (sizes <= (bound if order is None else bound[order])).all()


def test_timestamps_of_rows_take_the_place_of_those_of_pieces() -> None:
    rows = RecordColumns(MIN_ROWS, pa.array([b"value"] * MIN_ROWS))
    deltas = np.arange(MIN_ROWS)
    pieces = Pieces(np.array([0]), np.array([MIN_ROWS]), np.array([0]))
    expected = encode_records(rows, None, np.arange(MIN_ROWS), deltas)
    assert [bytes(piece) for piece in encode_pieces(rows, None, pieces, deltas).pieces] == [bytes(expected.data)]


def refuse_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("the general path was taken")

    monkeypatch.setattr(module, "encode_records", refused)


@pytest.mark.parametrize("timestamp_deltas", [None, [0, 5], [64, 70]])
@pytest.mark.parametrize("key", [None, 0, 10, 30])
def test_rows_of_one_length_take_the_fast_path_from_the_second_time_on(
    monkeypatch: pytest.MonkeyPatch, key: int | None, timestamp_deltas: list[int] | None
) -> None:
    keys = None if key is None else pa.array([b"k" * key] * 200)
    rows = RecordColumns(200, pa.array([b"v" * 100] * 200), keys)
    pieces = Pieces(np.array([0, 150]), np.array([150, 50]), np.array([0, 300]), timestamp_deltas)
    first = encode_pieces(rows, None, pieces)
    refuse_the_general_path(monkeypatch)
    second = encode_pieces(rows, None, pieces)
    assert [bytes(piece) for piece in second.pieces] == [bytes(piece) for piece in first.pieces]


def test_more_lengths_in_turn_than_are_remembered_take_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = Pieces(np.array([0]), np.array([MIN_ROWS]), np.array([0]))
    kinds = [RecordColumns(MIN_ROWS, pa.array([b"v" * length] * MIN_ROWS)) for length in range(LAYOUTS + 1)]
    for rows in kinds:
        encode_pieces(rows, None, pieces)
    refuse_the_general_path(monkeypatch)
    for rows in kinds:
        with pytest.raises(AssertionError, match="general path"):
            encode_pieces(rows, None, pieces)
