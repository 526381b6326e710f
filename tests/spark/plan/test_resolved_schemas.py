"""What an error says to do about a column whose type does not fit its field in a schema: one line for each, with a cast."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.plan.resolved_schemas import resolved_options
from spark_kafka_sink.spark.schema import sink_schema
from tests.registry.stand_in import StandIn

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
STAMP = "google.protobuf.Timestamp"
JSON_DATE = {"type": "string", "format": "date"}
JSON_TIME = {"type": "string", "format": "date-time"}


# Type of the field, the column, and what the error about the column `a` says to use; None: no cast helps.
MISFITS: dict[str, list[tuple[Any, str, str | None]]] = {
    "avro": [
        ("int", "'5'", "cast(a as int)"),
        (["null", "long"], "'5'", "cast(a as bigint)"),
        ("int", "5.5D", "cast(a as int), which cuts off the fraction"),
        ("long", "decimal(5)", "cast(a as bigint)"),
        ("float", "5.5D", "cast(a as float), which rounds"),
        ("double", "5L", "cast(a as double), which rounds"),
        ("double", "'5.5'", "cast(a as double)"),
        ("boolean", "1", "cast(a as boolean)"),
        ("string", "5", "cast(a as string)"),
        ("string", "named_struct('b', 1)", "to_json(a)"),
        ("bytes", "5", None),
        ({"type": "fixed", "name": "F", "size": 1}, "'5'", "cast(a as binary)"),
        (DECIMAL, "'5.5'", "cast(a as decimal(10,2)), which rounds"),
        (DATE, "'2026-01-01'", "cast(a as date)"),
        (DATE, "current_timestamp()", "cast(a as date), which drops the time"),
        (DATE, "5L", "date_from_unix_date(cast(a as int))"),
        (MILLIS, "'2026-01-01'", "cast(a as timestamp)"),
        (MILLIS, "5L", "timestamp_seconds(a), timestamp_millis(a) or timestamp_micros(a)"),
        (LOCAL, "current_timestamp()", "cast(a as timestamp_ntz)"),
        ("long", "current_timestamp()", "unix_seconds(a), unix_millis(a) or unix_micros(a)"),
        ("int", "current_date()", "unix_date(a)"),
        ("int", "array(1)", None),
        ({"type": "array", "items": "int"}, "1", None),
        ({"type": "string", "logicalType": "uuid"}, "binary('a')", None),
    ],
    "protobuf": [
        ("int32", "'5'", "cast(a as int)"),
        ("optional int64", "5.5D", "cast(a as bigint), which cuts off the fraction"),
        ("uint32", "'5'", "cast(a as bigint)"),
        ("int64", "current_timestamp()", "unix_seconds(a), unix_millis(a) or unix_micros(a)"),
        ("float", "5.5D", "cast(a as float), which rounds"),
        ("bool", "'true'", "cast(a as boolean)"),
        ("string", "5", "cast(a as string)"),
        (STAMP, "'2026-01-01'", "cast(a as timestamp)"),
        (STAMP, "5", "timestamp_seconds(a), timestamp_millis(a) or timestamp_micros(a)"),
    ],
    "json-schema": [
        ({"type": "integer", "minimum": 1}, "'5'", "cast(a as bigint)"),
        ({"type": ["null", "integer"]}, "5.5", "cast(a as bigint), which cuts off the fraction"),
        ({"oneOf": [{"type": "null"}, {"type": "number"}]}, "'5'", "cast(a as double)"),
        ({"type": "boolean"}, "'true'", "cast(a as boolean)"),
        ({"type": "string", "maxLength": 5}, "5", "cast(a as string)"),
        (JSON_DATE, "localtimestamp()", "cast(a as date), which drops the time"),
        (JSON_TIME, "current_date()", "cast(a as timestamp)"),
        ({"type": "string", "contentEncoding": "base64"}, "5", None),
        ({"enum": ["a"]}, "5", None),
    ],
}


def schema_text(kind: str, types: dict[str, Any]) -> str:
    """Returns a schema with these fields."""
    if kind == "avro":
        fields = [{"name": name, "type": field} for name, field in types.items()]
        return json.dumps({"type": "record", "name": "R", "fields": fields})
    if kind == "protobuf":
        listed = " ".join(f"{field} {name} = {number};" for number, (name, field) in enumerate(types.items(), 1))
        return f'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message R {{ {listed} }}'
    return json.dumps({"type": "object", "properties": types})


def refuse(stand_in: StandIn, schema: t.StructType, kind: str, text: str, **more: str) -> str:
    """Returns the error about the columns; empty if they fit."""
    given = {"topic": "events", "kafka.bootstrap.servers": "localhost:9092", "schema.registry.url": stand_in.url}
    options = sink_options({**given, "value.format": kind, "value.schema": text, **more})
    columns = sink_schema(schema, options.topic, record=options.record, formats=options.formats)
    try:
        resolved_options(options, columns, schema)
    except SchemaError as error:
        return error.message
    return ""


@pytest.mark.spark
@pytest.mark.parametrize("kind", MISFITS)
def test_an_error_has_a_line_for_each_field_with_the_cast_that_mends_it(
    spark: SparkSession, stand_in: StandIn, kind: str
) -> None:
    named = {f"c{number}": misfit for number, misfit in enumerate(MISFITS[kind])}
    df = spark.range(1).selectExpr(*(f"{expression} AS {name}" for name, (_, expression, _) in named.items()))
    text = schema_text(kind, {name: field for name, (field, _, _) in named.items()})
    _, *lines = refuse(stand_in, df.schema, kind, text).splitlines()
    assert len(lines) == len(named)
    mended = df
    for line, (name, (_, _, remedy)) in zip(lines, named.items(), strict=True):
        assert line.startswith(f"  {name}: column {df.schema[name].dataType.simpleString()}, schema ")
        assert "cast it" not in line or "or cast it to a whole number" in line
        told = line.partition("; use ")[2]
        assert told == (re.sub(r"\ba\b", name, remedy) if remedy else "")
        mended = mended.withColumn(name, F.expr(re.split(", | or ", told)[0])) if told else mended.drop(name)
    assert [line for line in refuse(stand_in, mended.schema, kind, text).splitlines()[1:] if "missing" not in line] == []
    mended.collect()


AGE = json.dumps({"type": "record", "name": "R", "fields": [{"name": "age", "type": "int"}]})


def test_a_field_inside_of_a_column_has_no_name_in_sql(stand_in: StandIn) -> None:
    inner = t.StructType([t.StructField("age", t.StringType())])
    value = t.StructType([t.StructField("value", inner)])
    assert "it must be a whole number; convert age to int" in refuse(stand_in, value, "avro", AGE)
    inexact = t.StructType([t.StructField("value", t.StructType([t.StructField("age", t.DoubleType())]))])
    assert refuse(stand_in, inexact, "avro", AGE).endswith("; convert age to int, which cuts off the fraction")
    nested = json.dumps(
        {"type": "record", "name": "P", "fields": [{"name": "who", "type": {"type": "array", "items": json.loads(AGE)}}]}
    )
    column = t.StructType([t.StructField("who", t.ArrayType(inner))])
    assert "; convert who[].age to int" in refuse(stand_in, column, "avro", nested)


def test_a_value_that_is_no_record_is_named_by_its_column(stand_in: StandIn) -> None:
    columns = t.StructType([t.StructField("value", t.StringType())])
    assert "the value: column string, schema int: it must be a whole number; use cast(value as int)" in refuse(
        stand_in, columns, "avro", '"int"'
    )
    record = t.StructType([t.StructField("age", t.StringType())])
    assert refuse(stand_in, record, "avro", '"string"').endswith("it must be string")


def test_a_column_with_another_name_than_sql_allows_is_quoted(stand_in: StandIn) -> None:
    columns = t.StructType([t.StructField("the age", t.StringType())])
    text = json.dumps({"type": "object", "properties": {"the age": {"type": "integer"}}})
    assert "; use cast(`the age` as bigint)" in refuse(stand_in, columns, "json-schema", text)


def test_facts_have_the_cast(stand_in: StandIn) -> None:
    given = {"topic": "events", "kafka.bootstrap.servers": "localhost:9092", "schema.registry.url": stand_in.url}
    options = sink_options({**given, "value.format": "avro", "value.schema": AGE})
    schema = t.StructType([t.StructField("age", t.StringType())])
    columns = sink_schema(schema, options.topic, record=options.record, formats=options.formats)
    with pytest.raises(SchemaError) as caught:
        resolved_options(options, columns, schema)
    assert caught.value.facts["misfits"] == (("age", "string", "int", "it must be a whole number; use cast(age as int)"),)
