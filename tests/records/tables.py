"""Hypothesis: any rows, as the columns that hold them and as the records that must come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.record_reader import Headers, Record
from tests.records.making import header_rows

# Lengths where a varint grows, and where a value no longer fits in a view struct.
EDGES = (0, 1, 4, 11, 12, 13, 63, 64, 127, 128, 8191, 8192)

small_bytes = st.binary(max_size=20)
any_bytes = small_bytes | st.builds(lambda size, byte: bytes([byte]) * size, st.sampled_from(EDGES), st.integers(0, 255))
any_text = st.text(max_size=15)
headers: st.SearchStrategy[Headers] = st.lists(st.tuples(any_text, st.none() | small_bytes), max_size=3).map(tuple)
int64s = st.integers(-(2**63), 2**63 - 1)
timestamp_deltas = st.integers(-100, 100) | st.integers(-(10**6), 10**6) | st.integers(-(2**40), 2**40) | int64s
BINARY = (pa.binary(), pa.large_binary())
TEXT = (pa.string(), pa.large_string())


@dataclass(frozen=True)
class Table:
    """`records` are the rows in output order, with offset and timestamp as deltas."""

    columns: RecordColumns
    order: NDArray[np.intp] | None
    offset_deltas: NDArray[np.int32]
    timestamp_deltas: NDArray[np.int64] | None
    records: list[Record]


def column(values: list[Any], arrow_type: pa.DataType, before: int = 0) -> pa.Array:
    """A slice behind `before` other rows. Under nulls lies what Arrow allows to lie there: anything."""
    filler: Any = "under a null, longer than 12 bytes" if arrow_type in TEXT else b"under a null, longer than 12 bytes"
    return _hiding(values, filler, arrow_type, before)


def header_column(rows: Sequence[Headers | None], large: bool, before: int = 0) -> pa.Array:
    binary, text = (BINARY[1], TEXT[1]) if large else (BINARY[0], TEXT[0])
    pair = pa.struct([("key", text), ("value", binary)])
    arrow_type = pa.large_list(pair) if large else pa.list_(pair)
    return _hiding(header_rows(rows), [{"key": "under a null", "value": b"list"}], arrow_type, before)


def _hiding(values: list[Any], filler: Any, arrow_type: pa.DataType, before: int) -> pa.Array:
    padded = [filler] * before + values + [filler]
    full = pa.array([filler if value is None else value for value in padded], arrow_type)
    valid = pa.py_buffer(np.packbits([value is not None for value in padded], bitorder="little"))
    children = {"children": [full.values]} if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) else {}
    masked = pa.Array.from_buffers(arrow_type, len(full), [valid, *full.buffers()[1 : 2 if children else 3]], **children)
    return masked.slice(before, len(values))


@st.composite
def byte_columns(draw: st.DrawFn, rows: int) -> tuple[list[bytes | None], pa.Array | None]:
    """The values, and a column of them: all null, of one length, or anything; binary or text."""
    kind = draw(st.sampled_from(["none", "text", "one length", "any", "no nulls"]))
    if kind == "none":
        return [None] * rows, None
    before = draw(st.integers(0, 9))
    if kind == "text":
        texts = draw(st.lists(st.none() | any_text, min_size=rows, max_size=rows))
        values = [None if text is None else text.encode() for text in texts]
        return values, column(texts, draw(st.sampled_from(TEXT)), before)
    one: st.SearchStrategy[bytes | None] = any_bytes
    if kind == "one length":
        size = draw(st.sampled_from(EDGES))
        one = st.integers(0, 255).map(lambda byte: bytes([byte]) * size)
    elif kind == "any":
        one = st.none() | any_bytes
    values = draw(st.lists(one, min_size=rows, max_size=rows))
    return values, column(values, draw(st.sampled_from(BINARY)), before)


@st.composite
def header_columns(draw: st.DrawFn, rows: int) -> tuple[list[Headers], pa.Array | None]:
    if draw(st.booleans()):
        return [()] * rows, None
    lists = draw(st.lists(st.none() | headers, min_size=rows, max_size=rows))
    return [row or () for row in lists], header_column(lists, draw(st.booleans()), draw(st.integers(0, 9)))


@st.composite
def orders(draw: st.DrawFn, rows: int, least: int) -> NDArray[np.intp] | None:
    """None, or a permutation of all rows or of some."""
    if draw(st.booleans()):
        return None
    chosen = draw(st.permutations(range(rows)))[: draw(st.integers(least, rows))]
    return np.array(chosen, np.intp)


@st.composite
def tables(
    draw: st.DrawFn, timestamps: st.SearchStrategy[int] = timestamp_deltas, *, least_rows: int = 0, gaps: bool = True
) -> Table:
    rows = draw(st.integers(least_rows, 20))
    keys, key = draw(byte_columns(rows))
    values, value = draw(byte_columns(rows))
    header_lists, header = draw(header_columns(rows))
    order = draw(orders(rows, least_rows))
    chosen = list(range(rows)) if order is None else order.tolist()
    count = len(chosen)
    steps = draw(st.lists(st.sampled_from([1, 1, 60, 9000, 10**6]), min_size=count, max_size=count)) if gaps else [1] * count
    offsets = np.cumsum([0, *steps])[:count].astype(np.int32)
    deltas = draw(st.none() | st.lists(timestamps, min_size=count, max_size=count))
    records = [
        Record(int(offsets[j]), 0 if deltas is None else deltas[j], keys[row], values[row], header_lists[row])
        for j, row in enumerate(chosen)
    ]
    columns = RecordColumns(num_records=rows, key=key, value=value, headers=header)
    return Table(columns, order, offsets, None if deltas is None else np.array(deltas, np.int64), records)
