from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.row_checksum import RowChecksum
from spark_kafka_sink.records.columns import RecordColumns
from tests.every import every

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int, int]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BYTES = st.none() | st.binary(max_size=3)
ROWS = st.lists(
    st.tuples(
        BYTES,
        BYTES,
        st.none() | st.lists(st.tuples(st.text(max_size=2), BYTES), max_size=2),
        st.integers(-1, 3),
        st.integers(-1, 3),
    ),
    max_size=8,
)


def columns(rows: Sequence[Row]) -> RecordColumns:
    keys, values, headers, timestamps, partitions = zip(*rows, strict=True) if rows else ((),) * 5
    structs = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in headers]
    return RecordColumns(
        num_records=len(rows),
        key=pa.array(keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.array(structs, HEADERS),
        timestamp=np.array(timestamps, np.int64),
        partition=np.array(partitions, np.int32),
    )


def checksum(*parts: Sequence[Row]) -> int:
    made = RowChecksum()
    for part in parts:
        made.add("topic", columns(part))
    return made.value


def of_values(*arrays: pa.Array) -> int:
    made = RowChecksum()
    for array in arrays:
        made.add("topic", RecordColumns(num_records=len(array), value=array))
    return made.value


@given(ROWS, st.lists(st.integers(0, 8), max_size=4))
def test_it_does_not_depend_on_how_rows_are_cut_into_batches(rows: list[Row], cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(rows)]
    assert checksum(*(rows[start:end] for start, end in pairwise(ends))) == checksum(rows)


@given(ROWS, st.integers(0, 8), st.integers(0, 8))
def test_a_slice_counts_for_what_it_shows(rows: list[Row], start: int, length: int) -> None:
    whole, cut = RowChecksum(), RowChecksum()
    start = min(start, len(rows))
    shown = rows[start : start + length]
    whole.add("topic", columns(shown))
    cut.add("topic", columns(rows).slice(start, len(shown)))
    assert whole.value == cut.value


@given(ROWS, ROWS)
def test_other_rows_have_another(one: list[Row], other: list[Row]) -> None:
    # Of so few that 32 bits do not meet by chance. A null list of headers and an empty one are told apart as well.
    assume(one != other)
    assert checksum(one) != checksum(other)


@every(
    "one, other",
    [
        (["a", "b"], ["b", "a"]),
        (["ab", "c"], ["a", "bc"]),
        ([None, "a"], ["", "a"]),
        ([None, "a"], ["a", None]),
        (["a"], ["a", None]),
    ],
)
def test_moved_and_nulled_values_show(one: list[str | None], other: list[str | None]) -> None:
    assert of_values(pa.array(one, pa.string())) != of_values(pa.array(other, pa.string()))


def test_text_is_its_bytes_in_whatever_type_it_comes() -> None:
    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    assert len({of_values(pa.array(["a", None, "", "bcd"], kind)) for kind in kinds}) == 1


def test_what_stands_behind_a_null_does_not_count() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 3, 4], np.int32))
    validity = pa.py_buffer(b"\x05")
    hidden = pa.Array.from_buffers(pa.binary(), 3, [validity, offsets, pa.py_buffer(b"axxb")])
    assert hidden.to_pylist() == [b"a", None, b"b"]
    assert of_values(hidden) == of_values(pa.array([b"a", None, b"b"]))


def test_the_topic_counts_and_the_order_between_topics_does_not() -> None:
    def of(*topics: str) -> int:
        made = RowChecksum()
        for topic in topics:
            made.add(topic, columns([(None, topic.encode(), None, 0, 0)]))
        return made.value

    assert of("a", "b") == of("b", "a") != of("a", "c")


def test_a_column_that_is_not_there_is_one_of_nulls_in_every_batch() -> None:
    def of(*sizes: int) -> int:
        made = RowChecksum()
        for size in sizes:
            made.add("topic", RecordColumns(num_records=size, value=pa.array([b"x"] * size)))
        return made.value

    assert of(2, 1) == of(3) != of(4)


STRUCT = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])


@every(
    "kind, values, other",
    [
        (pa.int64(), [1, None, 3], [1, 0, 3]),
        (pa.bool_(), [True, False, None], [True, None, False]),
        (pa.float64(), [0.5, None, 2.0], [0.5, None, 2.5]),
        (pa.decimal128(10, 2), [Decimal("1.10"), None], [Decimal("1.11"), None]),
        (STRUCT, [{"a": 1, "b": ["x"]}, None], [{"a": 1, "b": [None]}, None]),
        (STRUCT, [{"a": None, "b": None}, None], [None, {"a": None, "b": None}]),
        (pa.map_(pa.string(), pa.int32()), [[("k", 1)], None, []], [[("k", 1)], [], None]),
        (pa.list_(pa.int16()), [[1, 2], [3]], [[1], [2, 3]]),
    ],
)
def test_columns_for_serializers_count_too(kind: pa.DataType, values: list[Any], other: list[Any]) -> None:
    array = pa.array(values, kind)
    assert of_values(array.slice(0, 1), array.slice(1)) == of_values(array) != of_values(pa.array(other, kind))
    # with rows around it that are cut away
    assert of_values(pa.concat_arrays([array, array]).slice(len(array))) == of_values(array)


def test_a_column_of_nothing_but_nulls_is_as_long_as_it_is() -> None:
    assert of_values(pa.nulls(3)) == of_values(pa.nulls(1), pa.nulls(2)) != of_values(pa.nulls(2))
