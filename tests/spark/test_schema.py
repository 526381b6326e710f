from __future__ import annotations

import pytest
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.options.record_options import RecordOptions
from spark_kafka_sink.producer.serializers.json_serializer import JsonSerializer
from spark_kafka_sink.spark.schema import SinkSchema, check_arrow, sink_schema

HEADERS = t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]))
DAY_TIME = t.DayTimeIntervalType()
MONTHS = t.YearMonthIntervalType()


def struct(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def refused(schema: t.StructType, topic: str | None = "events") -> str:
    with pytest.raises(SchemaError) as caught:
        sink_schema(schema, topic)
    return str(caught.value)


def test_columns_are_found_by_name_wherever_they_stand() -> None:
    schema = struct(
        timestamp=t.TimestampType(),
        extra=t.DateType(),
        value=t.BinaryType(),
        topic=t.StringType(),
        headers=HEADERS,
        key=t.StringType(),
        partition=t.IntegerType(),
    )
    assert sink_schema(schema, None) == SinkSchema(value=2, key=5, headers=4, topic=3, partition=6, timestamp=0)


def test_only_value_and_a_topic_are_required() -> None:
    assert sink_schema(struct(value=t.StringType()), "events") == SinkSchema(value=0)
    assert sink_schema(struct(value=t.StringType(), topic=t.StringType()), None) == SinkSchema(value=0, topic=1)


def test_the_topic_option_wins_over_a_topic_column_of_any_type() -> None:
    assert sink_schema(struct(value=t.StringType(), topic=t.DateType()), "events").value == 0


def test_bigint_timestamps_and_void_columns_are_accepted() -> None:
    void = t.NullType()
    assert sink_schema(struct(value=t.StringType(), timestamp=t.LongType()), "events").timestamp == 1
    of_void = sink_schema(struct(value=void, key=void, headers=void, topic=void, partition=void, timestamp=void), None)
    assert (of_void.value, of_void.key, of_void.timestamp) == (0, 1, 5)


def test_headers_are_compared_without_nullability() -> None:
    element = t.StructType([t.StructField("key", t.StringType(), False), t.StructField("value", t.BinaryType(), False)])
    assert sink_schema(struct(value=t.StringType(), headers=t.ArrayType(element, False)), "events").headers == 1


def test_a_missing_value_names_the_column_that_was_meant() -> None:
    with pytest.raises(SchemaError, match="column value is required; did you mean Value"):
        sink_schema(struct(key=t.StringType(), Value=t.StringType()), "events", case_sensitive=True)
    assert refused(struct(values=t.StringType())).startswith("[SCHEMA] column value is required; did you mean values?")
    assert "list columns in the option value.columns" in refused(struct(id=t.LongType()))


def test_a_missing_topic_names_column_and_option() -> None:
    assert refused(struct(value=t.StringType()), None) == "[SCHEMA] column topic is required when the option topic is not set"


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = t.StructType([t.StructField("value", t.StringType()), t.StructField("value", t.BinaryType())])
    assert "column value: there are 2 of this name" in refused(twice)


@pytest.mark.parametrize(
    ("column", "kind", "cast"),
    [
        ("value", t.IntegerType(), "cast(value as string)"),
        ("key", t.ArrayType(t.StringType()), "to_json(key)"),
        ("topic", t.IntegerType(), "cast(topic as string)"),
        ("partition", t.LongType(), "cast(partition as int)"),
        ("timestamp", t.DateType(), "cast(timestamp as timestamp)"),
        ("headers", t.StringType(), "named_struct('key', "),
    ],
)
def test_a_wrong_type_names_column_type_and_cast(column: str, kind: t.DataType, cast: str) -> None:
    text = refused(struct(**{"value": t.StringType(), column: kind}), None if column == "topic" else "events")
    assert text.startswith(f"[SCHEMA] column {column}: is {kind.simpleString()}, must be ")
    assert cast in text


@pytest.mark.parametrize(
    "element",
    [
        t.StructType([t.StructField("value", t.BinaryType()), t.StructField("key", t.StringType())]),
        t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.StringType())]),
        t.StructType([t.StructField("key", t.StringType())]),
        t.StringType(),
    ],
)
def test_other_headers_are_refused(element: t.DataType) -> None:
    assert "column headers: " in refused(struct(value=t.StringType(), headers=t.ArrayType(element)))


def test_columns_are_found_in_any_case_unless_case_is_told_apart() -> None:
    columns = struct(Key=t.StringType(), VALUE=t.StringType(), Headers=HEADERS, Topic=t.StringType())
    assert sink_schema(columns, None) == SinkSchema(value=1, key=0, headers=2, topic=3)
    exact = struct(Key=t.StringType(), value=t.StringType(), key=t.StringType())
    assert sink_schema(exact, "events", case_sensitive=True) == SinkSchema(value=1, key=2)


def test_a_struct_with_two_fields_of_one_name_is_refused_with_no_cast_that_writes_both() -> None:
    twice = t.ArrayType(t.StructType([t.StructField("a", t.LongType())] * 2))
    problem = r"an object of JSON cannot have two fields 'a'; rename one of them\)$"
    with pytest.raises(SchemaError, match=rf"option value\.columns: column s is .*, which cannot be written as JSON \({problem}"):
        sink_schema(struct(s=twice), "events", record=RecordOptions(value_columns=("s",)))
    with pytest.raises(SchemaError, match=rf"column value: is .*, which JsonSerializer does not accept \(.*{problem}"):
        sink_schema(struct(value=twice), "events", {"value": JsonSerializer()})


def test_columns_that_differ_in_case_alone_are_refused_by_both_names() -> None:
    columns = struct(Key=t.StringType(), value=t.StringType(), key=t.StringType())
    assert refused(columns) == (
        "[SCHEMA] columns Key and key differ in case alone, and both are the record's key; drop or rename all but one"
    )
    # The option wins over both.
    assert sink_schema(struct(value=t.StringType(), Topic=t.DateType(), topic=t.DateType()), "events") == SinkSchema(value=0)


@pytest.mark.parametrize(
    "kind",
    [MONTHS, t.ArrayType(MONTHS), t.MapType(t.StringType(), MONTHS), struct(inner=MONTHS), struct(inner=t.ArrayType(MONTHS))],
)
def test_a_column_that_spark_cannot_hand_to_python_is_named(kind: t.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column extra: is .*interval year to month.*; select the record's columns"):
        check_arrow(struct(value=t.StringType(), extra=kind))
    check_arrow(struct(value=t.StringType(), extra=t.ArrayType(DAY_TIME)))
