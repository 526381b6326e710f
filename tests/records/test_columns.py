"""Columns one after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.records.columns import RecordColumns, concatenated

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def columns(*rows: int) -> RecordColumns:
    return RecordColumns(
        num_records=len(rows),
        value=pa.array([b"v%d" % row for row in rows], pa.binary()),
        key=pa.array([f"k{row}" if row % 2 else None for row in rows], pa.string()),
        headers=pa.array([[{"key": "h", "value": b"%d" % row}] for row in rows], HEADERS),
        timestamp=np.array(rows, np.int64),
        partition=np.array(rows, np.int32),
    )


def as_lists(records: RecordColumns) -> list[object]:
    columns = (records.value, records.key, records.headers, records.timestamp, records.partition)
    return [
        records.num_records,
        *(column.tolist() if isinstance(column, np.ndarray) else pa.array(column).to_pylist() for column in columns),
    ]


def test_parts_stand_one_after_the_other_in_every_column() -> None:
    parts = [columns(1, 2), columns(3, 4, 5).slice(1, 2), columns(6)]
    assert as_lists(concatenated(parts)) == as_lists(columns(1, 2, 4, 5, 6))


def test_one_part_is_not_copied() -> None:
    part = columns(1)
    assert concatenated([part]) is part


def test_columns_that_are_not_there_stay_so() -> None:
    both = concatenated([RecordColumns(1, value=pa.array([b"a"])), RecordColumns(2, value=pa.array([b"b", b"c"]))])
    assert (both.num_records, both.key, both.headers, both.timestamp, both.partition) == (3, None, None, None, None)


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (RecordColumns(1, value=pa.array([b"x"])), True),
        (RecordColumns(1, value=pa.array(["x"])), False),
        (RecordColumns(1, value=pa.array([b"x"]), key=pa.array([b"k"])), False),
        (RecordColumns(1, value=pa.array([b"x"]), partition=np.zeros(1, np.int32)), False),
    ],
)
def test_only_the_same_columns_of_the_same_types_are_alike(other: RecordColumns, alike: bool) -> None:
    assert RecordColumns(1, value=pa.array([b"a"])).is_like(other) is alike
