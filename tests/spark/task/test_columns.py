from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import RecordError, SerializationError
from spark_kafka_sink.records.columns import NO_PARTITION, NO_TIMESTAMP, RecordColumns
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema
from spark_kafka_sink.spark.task.columns import records_by_topic

TIMESTAMP = pa.timestamp("us", tz="UTC")


def one(**columns: pa.Array) -> RecordColumns:
    """The records of a batch that all go to one topic."""
    (records,) = split("t", **columns)
    found: RecordColumns = records.columns
    return found


def split(option: str | None, first_row: int = 0, /, **columns: pa.Array) -> list[Any]:
    if "value" not in columns:
        columns["value"] = pa.array([b"v"] * len(next(iter(columns.values()))))
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    schema = SinkSchema(**{name: index for index, name in enumerate(columns)})
    return list(records_by_topic(batch, schema, option, first_row=first_row))


def refused(first_row: int = 0, /, **columns: pa.Array) -> str:
    with pytest.raises(RecordError) as caught:
        split("t", first_row, **columns)
    return str(caught.value)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_keys_and_values_are_handed_on_as_they_are(kind: pa.DataType) -> None:
    value = pa.array(["a", None, ""], pa.string()).cast(kind)
    columns = one(key=value, value=value)
    for column in (columns.key, columns.value):
        assert column is not None
        assert column.type == kind
        assert column.equals(value)
    assert columns.num_records == 3


def test_columns_that_are_missing_or_void_are_absent() -> None:
    void = pa.nulls(2)
    for columns in (one(value=void, key=void, headers=void, timestamp=void, partition=void), one(value=void)):
        assert columns == RecordColumns(num_records=2)


def test_records_are_most_of_their_batch_if_they_are_half_of_its_bytes_and_not_a_part_of_its_rows() -> None:
    """Otherwise keeping them would keep other topics' rows or columns that are not written."""
    value = pa.array([b"v" * 100] * 10)
    assert [each.is_most_of_batch for each in split("t", value=value)] == [True]
    assert [each.is_most_of_batch for each in split(None, value=value, topic=pa.array(["t"] * 10))] == [True]
    assert [each.is_most_of_batch for each in split(None, value=value, topic=pa.array(["t", "u"] * 5))] == [False, False]
    batch = pa.RecordBatch.from_arrays([value, pa.array([b"x" * 150] * 10)], names=["value", "other"])
    assert [each.is_most_of_batch for each in records_by_topic(batch, SinkSchema(value=0), "t")] == [False]


def test_a_bigint_in_another_unit_is_refused_unless_a_unit_is_set_and_a_timestamp_is_not() -> None:
    numbers = pa.array([None, 1_700_000_000], pa.int64())
    assert "2023-11-14T22:13:20Z as seconds; set timestamp.unit=s, or" in refused(7, timestamp=numbers)
    batch = pa.RecordBatch.from_arrays([pa.array(["v"] * 2), numbers], names=["value", "timestamp"])
    found = {}
    for unit in ("s", "ms", "us"):
        (records,) = records_by_topic(batch, SinkSchema(value=0, timestamp=1), "t", timestamp_unit=unit)
        assert records.columns.timestamp is not None
        found[unit] = records.columns.timestamp.tolist()
    assert found == {"s": [-1, 1_700_000_000_000], "ms": [-1, 1_700_000_000], "us": [-1, 1_700_000]}
    assert one(timestamp=pa.array([1_700_000_000_000], pa.int64()).cast(TIMESTAMP)).timestamp == [1_700_000_000]


@pytest.mark.parametrize("kind", [pa.int64(), TIMESTAMP])
def test_a_null_timestamp_is_the_time_of_append(kind: pa.DataType) -> None:
    columns = one(timestamp=pa.array([None, 5000, None], pa.int64()).cast(kind))
    assert columns.timestamp is not None
    assert columns.timestamp.tolist() == [NO_TIMESTAMP, 5 if kind == TIMESTAMP else 5000, NO_TIMESTAMP]
    assert columns.timestamp.dtype == np.int64


@pytest.mark.parametrize("kind", [pa.int64(), TIMESTAMP])
def test_a_timestamp_before_1970_is_refused(kind: pa.DataType) -> None:
    text = refused(timestamp=pa.array([None, 1, -1], pa.int64()).cast(kind))
    assert text == "[RECORD] column timestamp: -1 ms is before 1970, and Kafka timestamps start in 1970, in row 2 of the data"


def test_a_null_partition_is_left_to_the_partitioner() -> None:
    columns = one(partition=pa.array([3, None, 0], pa.int32()))
    assert columns.partition is not None
    assert columns.partition.tolist() == [3, NO_PARTITION, 0]
    assert columns.partition.dtype == np.int32


def test_a_negative_partition_is_refused_by_its_row_in_the_task() -> None:
    text = refused(10_000, partition=pa.array([None, 7, -2], pa.int32()))
    assert text == "[RECORD] column partition: -2 is negative, in row 10002 of the data"


def test_nulls_outside_of_a_slice_do_not_count() -> None:
    columns = one(timestamp=pa.array([-5, 7, -5], pa.int64()).slice(1, 1))
    assert columns.timestamp is not None
    assert columns.timestamp.tolist() == [7]


def by_topic(topics: list[str | None], *, first_row: int = 0, kind: pa.DataType | None = None) -> list[Any]:
    values = pa.array([str(row).encode() for row in range(len(topics))])
    numbers = pa.array(range(len(topics)), pa.int64())
    batch = pa.RecordBatch.from_arrays(
        [values, pa.array(topics, kind or pa.string()), numbers, numbers.cast(pa.int32())], names=["v", "t", "ts", "p"]
    )
    return list(records_by_topic(batch, SinkSchema(value=0, topic=1, timestamp=2, partition=3), first_row=first_row))


def test_a_null_topic_is_refused_by_its_row() -> None:
    with pytest.raises(
        RecordError, match=r"column topic: is null, .* [(]set the option topic or filter the rows[)], in row 7 of"
    ):
        by_topic(["a", "b", None], first_row=5)
    with pytest.raises(RecordError, match="in row 0 of the data"):
        by_topic([None], kind=pa.null())


@pytest.mark.parametrize(
    ("topic", "text"),
    [("", r"'' is not a valid topic name"), ("a b", r"'a b' is not a valid topic name"), ("ü", r"'ü' is not a valid topic name")],
)
def test_what_is_no_topics_name_is_refused_by_its_first_row(topic: str, text: str) -> None:
    with pytest.raises(RecordError, match=f"column topic: {text}: it must have 1 to 249 .*, in row 7 of the data"):
        by_topic(["a", "b", topic, "a", topic], first_row=5)


def test_a_topic_that_is_no_utf8_is_refused_by_its_row() -> None:
    topics = pa.array([b"a", b"a\xff"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_arrays([pa.array([b"1", b"2"]), topics], names=["v", "t"])
    with pytest.raises(RecordError, match=r"column topic: 'a\\\\xff' is not a valid topic name.*, in row 1 of the data"):
        list(records_by_topic(batch, SinkSchema(value=0, topic=1)))


def test_rows_of_one_topic_are_not_copied() -> None:
    (records,) = by_topic(["a", "a"])
    assert records.rows is None


@given(topics=st.lists(st.sampled_from(["a", "b", "c.d", "E-_1"]), min_size=1), large=st.booleans())
def test_each_topic_gets_its_own_rows_in_order(topics: list[str | None], large: bool) -> None:
    found = by_topic(topics, kind=pa.large_string() if large else None)
    assert sorted(records.topic for records in found) == sorted({topic for topic in topics if topic is not None})
    for records in found:
        rows = [row for row, topic in enumerate(topics) if topic == records.topic]
        assert records.columns.num_records == len(rows)
        assert records.columns.value.to_pylist() == [str(row).encode() for row in rows]
        assert records.columns.timestamp.tolist() == rows
        assert records.columns.partition.tolist() == rows
        assert [records.batch_rows.row_in_task(row) for row in range(len(rows))] == rows


def test_more_topics_than_a_byte_can_number_are_split_right() -> None:
    topics: list[str | None] = [f"t{row % 300}" for row in range(900)]
    found = {records.topic: records.columns.value.to_pylist() for records in by_topic(topics)}
    assert found["t299"] == [b"299", b"599", b"899"]
    assert len(found) == 300


ORDERS = pa.record_batch(
    {
        "id": pa.array([1, None, 3, None]),
        "name": pa.array(["a", 'q"', None, None]),
        "share": pa.array([0.5, float("nan"), 1.0, None]),
        "deleted": pa.array([False, True, None, False]),
        "topic": pa.array(["b", "a", "b", "b"]),
    }
)


def group(*names: str, as_json: bool = True) -> ColumnGroup:
    return ColumnGroup(tuple(ORDERS.schema.get_field_index(name) for name in names), names, as_json)


def made(schema: SinkSchema, option: str | None = "t") -> list[RecordColumns]:
    return [each.columns for each in records_by_topic(ORDERS, schema, option, first_row=10, fixed_headers=(("h", b"1"),))]


def test_listed_columns_are_json_objects_without_their_nulls() -> None:
    (found,) = made(SinkSchema(value=group("name", "id"), key=group("id")))
    assert found.value is not None
    assert found.value.to_pylist() == ['{"name":"a","id":1}', '{"name":"q\\""}', '{"id":3}', "{}"]
    assert found.key is not None
    assert found.key.to_pylist() == ['{"id":1}', "{}", '{"id":3}', "{}"]
    assert found.fixed_headers == (("h", b"1"),)


def test_a_serializer_gets_listed_columns_as_a_struct() -> None:
    (found,) = made(SinkSchema(value=group("id", "name", as_json=False), tombstone=3))
    assert found.value is not None
    assert found.value.to_pylist() == [{"id": 1, "name": "a"}, None, {"id": 3, "name": None}, {"id": None, "name": None}]


def test_the_value_is_null_where_the_tombstone_column_is_true_and_null_is_false() -> None:
    """The deleted row holds NaN, which JSON cannot."""
    (json,) = made(SinkSchema(value=group("share"), tombstone=3))
    (plain,) = made(SinkSchema(value=1, tombstone=3))
    assert json.value is not None
    assert json.value.to_pylist() == ['{"share":0.5}', None, '{"share":1.0}', "{}"]
    assert plain.value is not None
    assert plain.value.to_pylist() == ["a", None, None, None]
    assert plain.num_records == 4


def test_what_json_cannot_hold_is_named_by_option_column_and_row() -> None:
    with pytest.raises(SerializationError, match=r"option value\.columns: share: nan, which JSON .*, in row 11 of the data"):
        made(SinkSchema(value=group("share")))


def test_records_of_each_topic_keep_their_json_and_fixed_headers() -> None:
    found = made(SinkSchema(value=group("id"), topic=4, tombstone=3), None)
    assert [one.value.to_pylist() for one in found if one.value is not None] == [['{"id":1}', '{"id":3}', "{}"], [None]]
    assert {one.fixed_headers for one in found} == {(("h", b"1"),)}
