"""Parts are joined row by row as a loop in Python would, whatever they are and whichever rows have none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.arrow_arrays import byte_lengths
from spark_kafka_sink.records.concat import Part, Present, column_views, constant, join, masked, sizes
from spark_kafka_sink.records.varints import Packed
from tests.every import every
from tests.examples import examples
from tests.records.tables import any_bytes, column

many_examples = settings(max_examples=examples(60), deadline=None)


@dataclass(frozen=True)
class Piece:
    """Some parts, and the bytes that each row must get from them."""

    parts: list[Part]
    rows: list[bytes]


@st.composite
def pieces(draw: st.DrawFn, rows: int) -> Piece:
    kind = draw(st.sampled_from(["constant", "word", "words", "binary", "masked"]))
    if kind == "constant":
        data = draw(any_bytes)
        return Piece(constant(data), [data] * rows)
    if kind == "binary":
        values = draw(st.lists(st.none() | any_bytes, min_size=rows, max_size=rows))
        array = column(values, draw(st.sampled_from([pa.binary(), pa.large_binary()])), draw(st.integers(0, 9)))
        return Piece([column_views(array, byte_lengths(array), None)], [value or b"" for value in values])
    if kind == "masked":
        present = draw(st.lists(st.booleans(), min_size=rows, max_size=rows).filter(any))
        inner = draw(pieces(rows))
        parts = masked(inner.parts, Present.of(np.array(present)))
        return Piece(parts, [row if there else b"" for row, there in zip(inner.rows, present, strict=True)])
    if kind == "word":
        data = draw(st.binary(max_size=8))
        return Piece([Packed(int.from_bytes(data, "little"), 8 * len(data), len(data))], [data] * rows)
    words = draw(st.lists(st.binary(max_size=8), min_size=rows, max_size=rows))
    numbers = np.array([int.from_bytes(word, "little") for word in words], np.uint64)
    bits = np.array([8 * len(word) for word in words], np.uint64)
    return Piece([Packed(numbers, bits, max(map(len, words)))], words)


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[Part], list[bytes]]:
    rows = draw(st.integers(1, 12))
    found = draw(st.lists(pieces(rows), max_size=8))
    parts = [part for piece in found for part in piece.parts]
    return rows, parts, [b"".join(piece.rows[row] for piece in found) for row in range(rows)]


@many_examples
@given(tables())
def test_each_row_is_the_concatenation_of_its_parts(table: tuple[int, list[Part], list[bytes]]) -> None:
    rows, parts, expected = table

    assert join(rows, parts).to_pylist() == expected
    assert np.broadcast_to(sizes(parts), rows).tolist() == [len(row) for row in expected]


@every("count", range(25))
@every("end", [b"", b"x"])
def test_zero_bytes_that_are_the_same_in_each_row_are_all_there(count: int, end: bytes) -> None:
    """They are put before the rest of a struct, if there are few of them."""
    zeros = bytes(count)
    for cut in range(count + 1):
        parts = [*constant(zeros[:cut]), *constant(zeros[cut:]), *constant(end)]
        assert join(3, parts).to_pylist() == [zeros + end] * 3


def test_rows_that_are_not_valid_become_null() -> None:
    valid = np.array([True, False, True])
    parts = masked(constant(b"abc"), Present.of(valid))

    assert join(3, parts, valid).to_pylist() == [b"abc", None, b"abc"]


def test_rows_without_bytes_are_empty_and_not_null() -> None:
    assert join(2, []).to_pylist() == [b"", b""]
    assert join(2, constant(b"")).to_pylist() == [b"", b""]
