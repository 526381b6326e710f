"""Records written again for other batches: any of them, in any order, and nothing of them is changed but the deltas."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.encoder import encode_again, encode_records, written_records
from spark_kafka_sink.records.record_reader import Record, read_record
from tests.examples import examples
from tests.records.making import columns_of
from tests.records.tables import Table, int64s, tables

pytestmark = pytest.mark.slow


def encoded(table: Table) -> bytes:
    return bytes(encode_records(table.columns, table.order, table.offset_deltas, table.timestamp_deltas).data)


def read(data: bytes, bounds: list[int]) -> list[Record]:
    found = []
    for start, end in itertools.pairwise(bounds):
        record, position = read_record(data, start, 0, 0, None)
        assert position == end
        found.append(record)
    return found


@settings(max_examples=examples(100))
@given(tables())
def test_what_was_written_is_found_again(table: Table) -> None:
    data = encoded(table)
    found = written_records(data, len(table.records))
    assert int(found.sizes.sum()) == len(data)
    assert found.timestamp_deltas.tolist() == [record.timestamp for record in table.records]


@settings(max_examples=examples(100))
@given(tables(least_rows=1), st.data())
def test_any_records_are_written_again_with_other_deltas(table: Table, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(table.records) - 1), min_size=1, max_size=30))
    offsets = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=len(rows), max_size=len(rows)))
    timestamps = data.draw(st.lists(int64s, min_size=len(rows), max_size=len(rows)))
    again = encode_again(
        written_records(encoded(table), len(table.records)),
        np.array(rows, np.intp),
        np.array(offsets, np.int32),
        np.array(timestamps, np.int64),
    )
    due = [
        replace(table.records[row], offset=offset, timestamp=timestamp)
        for row, offset, timestamp in zip(rows, offsets, timestamps, strict=True)
    ]
    assert read(bytes(again.data), again.offsets.tolist()) == due


def test_a_header_key_that_is_not_utf8_stays_as_it_is() -> None:
    """Spark's strings may hold any bytes; to read such a record is an error, to write it again is not."""
    columns = columns_of([Record(0, 0, b"k", b"v", (("xy", b"header"),))])
    zero = np.zeros(1, np.int64)
    data = bytes(encode_records(columns, None, zero.astype(np.int32), zero).data).replace(b"xy", b"\xff\xfe")
    again = encode_again(written_records(data, 1), np.zeros(1, np.intp), zero.astype(np.int32), zero)
    assert bytes(again.data) == data
