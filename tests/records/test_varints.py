"""Columns of varints are what writing each number by itself gives."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.varints import Packed, packed_sizes, unsigned_varint, unsigned_varints, varint_sizes, varints
from tests.every import every
from tests.examples import examples

# Around each power of 2**7 the zigzag code grows by a byte.
edges = [sign * 2 ** (7 * byte - 1) + step for byte in range(1, 10) for sign in (1, -1) for step in (-1, 0, 1)]
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300) | st.integers(-20_000, 20_000) | st.sampled_from(edges)


def one_by_one(number: int) -> bytes:
    """ByteUtils.writeVarlong."""
    code = (number << 1) ^ (number >> 63)
    written = bytearray()
    while code > 0x7F:
        written.append(code & 0x7F | 0x80)
        code >>= 7
    written.append(code)
    return bytes(written)


def bytes_of(packed: Packed, row: int) -> bytes:
    word, bits = (int(part if isinstance(part, int) else part[row]) for part in (packed.word, packed.bits))
    assert bits <= 8 * packed.max_bytes
    assert word < 1 << bits or word == bits == 0
    return word.to_bytes(8, "little")[: bits // 8]


@settings(max_examples=examples(100))
@given(st.lists(numbers, min_size=1, max_size=50))
@example(edges)
@example([-(2**63), 2**63 - 1, 0])
@example([-16384, 16383])
@example([-16385, 0])
@example([0, 16384])
@example([0, 2**55 - 1])
def test_a_column_holds_the_varint_of_each_number(values: list[int]) -> None:
    parts = varints(np.array(values, np.int64))
    assert [b"".join(bytes_of(part, row) for part in parts) for row in range(len(values))] == [one_by_one(v) for v in values]


@settings(max_examples=examples(100))
@given(st.lists(numbers, min_size=1, max_size=20), st.integers(0, 300), st.integers(0, 300))
def test_known_bounds_change_nothing_however_wide_they_are(values: list[int], below: int, above: int) -> None:
    column = np.array(values, np.int64)
    parts = varints(column, (min(values) - below, max(values) + above))
    assert [b"".join(bytes_of(part, row) for part in parts) for row in range(len(values))] == [one_by_one(v) for v in values]
    sizes = packed_sizes(parts)
    assert [sizes if isinstance(sizes, int) else sizes[row] for row in range(len(values))] == [len(one_by_one(v)) for v in values]


codes = st.integers(0, 300) | st.integers(0, 2**40) | st.integers(0, 2**64 - 1)


def unsigned_one_by_one(code: int) -> bytes:
    """Returns 7 bits for each byte, the lowest first; all but the last have the highest bit set."""
    groups = [code >> shift & 0x7F for shift in range(0, max(code.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


@settings(max_examples=examples(100))
@given(st.lists(codes, min_size=1, max_size=50), st.integers(0, 300), st.integers(0, 300))
@example([2 ** (7 * size) + more for size in range(1, 10) for more in (-1, 0, 1)], 0, 0)
@example([0, 32767], 0, 0)
@example([0, 32768], 0, 0)
@example([2**56 - 1, 2**64 - 1], 0, 0)
def test_a_column_without_zigzag(values: list[int], below: int, above: int) -> None:
    column = np.array(values, np.uint64)
    for extremes in (None, (max(min(values) - below, 0), min(max(values) + above, 2**64 - 1))):
        parts = unsigned_varints(column, extremes)
        found = [b"".join(bytes_of(part, row) for part in parts) for row in range(len(values))]
        assert found == [unsigned_one_by_one(value) for value in values]


@given(codes)
def test_one_code_for_all_rows_is_the_varint_of_it(code: int) -> None:
    assert b"".join(bytes_of(part, 0) for part in unsigned_varints(code)) == unsigned_one_by_one(code) == unsigned_varint(code)


@settings(max_examples=examples(100))
@given(numbers)
def test_one_number_for_all_rows_is_the_varint_of_it(value: int) -> None:
    assert b"".join(bytes_of(part, 0) for part in varints(value)) == one_by_one(value)


@given(st.lists(numbers, max_size=50))
@example(edges)
def test_sizes_are_those_of_the_varints(values: list[int]) -> None:
    assert varint_sizes(np.array(values, np.int64)).tolist() == [len(one_by_one(value)) for value in values]
    assert [varint_sizes(value) for value in values] == [len(one_by_one(value)) for value in values]


@every("width", range(1, 9))
def test_numbers_of_one_width_cost_one_part_that_says_so(width: int) -> None:
    codes = [1 << (7 * (width - 1)), (1 << (7 * width)) - 2] if width > 1 else [0, 126]
    (part,) = varints(np.array([code >> 1 for code in codes], np.int64))
    assert part.max_bytes == width


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(-8192, 8191), st.integers(-(2**20), 2**20)), min_size=1, max_size=20))
def test_two_parts_put_end_to_end_hold_the_bytes_of_both(pairs: list[tuple[int, int]]) -> None:
    (first,) = varints(np.array([a for a, _ in pairs], np.int64))
    (second,) = varints(np.array([b for _, b in pairs], np.int64))
    both = first.then(second)
    assert [bytes_of(both, row) for row in range(len(pairs))] == [one_by_one(a) + one_by_one(b) for a, b in pairs]
