"""Fixed headers, `key.columns`, `value.columns` and `tombstone.column`: which options and columns are accepted."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import types as t

from spark_kafka_sink.errors import OptionError, SchemaError
from spark_kafka_sink.options.record_options import RecordOptions, check_header_names, record_options
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.producer.serializers.json_serializer import JsonSerializer
from spark_kafka_sink.producer.serializers.primitives import LongSerializer
from spark_kafka_sink.spark.schema import ColumnGroup, SinkSchema, sink_schema

ORDERS = t.StructType(
    [
        t.StructField("id", t.LongType()),
        t.StructField("Region", t.StringType()),
        t.StructField("amount", t.DecimalType(10, 2)),
        t.StructField("deleted", t.BooleanType()),
        t.StructField("term", t.YearMonthIntervalType()),
        t.StructField("pause", t.DayTimeIntervalType()),
    ]
)


def options(**found: object) -> RecordOptions:
    return record_options({name.replace("__", "."): value for name, value in found.items()})


def refused(**found: object) -> str:
    with pytest.raises(OptionError) as caught:
        options(**found)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def refused_columns(schema: t.StructType = ORDERS, **found: object) -> str:
    with pytest.raises(SchemaError) as caught:
        sink_schema(schema, "orders", record=options(**found))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def with_column(name: str, kind: t.DataType) -> t.StructType:
    return t.StructType([*ORDERS.fields, t.StructField(name, kind)])


def test_a_sink_without_these_options_uses_the_columns_of_a_record() -> None:
    assert sink_options({"kafka.bootstrap.servers": "a:1"}).record == RecordOptions()


def test_fixed_headers_have_a_defined_order_and_utf8_values() -> None:
    found = options(headers__b="ü", headers__a="", headers='{"Z": "1", "Y": null, "Z": "2"}')
    assert found.headers == (("Z", b"1"), ("Y", None), ("Z", b"2"), ("a", b""), ("b", "ü".encode()))


def test_python_values_of_headers_are_accepted() -> None:
    found = options(headers={"Trace": b"\xff", "n": 5, "f": 0.5, "none": None}, headers__yes=True)
    assert found.headers == (("Trace", b"\xff"), ("n", b"5"), ("f", b"0.5"), ("none", None), ("yes", b"true"))


@pytest.mark.parametrize("headers", ["source=billing", "[1]", '"a"', "{", 5, {1: "a"}])
def test_headers_that_are_no_object_are_refused(headers: object) -> None:
    assert refused(headers=headers) == (
        '[OPTION] option headers: must be a JSON object of header names and texts, such as {"source": "billing"}'
    )


def test_a_bad_header_is_named_and_its_value_is_not_shown() -> None:
    assert "option headers: the value of header a is list, must be text" in refused(headers='{"a": ["secret"]}')
    assert "option headers: the value of header a is an object, must be text" in refused(headers='{"a": {"b": "secret"}}')
    assert "option headers.: the header's name is missing after the dot" in refused(headers__="x")
    twice = refused(headers='{"a": "secret"}', headers__a="secret")
    assert "option headers.a: the option headers sets this header too; remove one of them" in twice
    assert "secret" not in twice + repr(options(headers__a="secret"))
    assert "option headers.a: is not valid Unicode text" in refused(headers__a="\ud800")


def test_a_header_name_that_spark_would_change_is_refused_everywhere() -> None:
    with pytest.raises(OptionError, match=r'option headers\.Trace-Id: Spark changes .* set headers=\{"Trace-Id": "\.\.\."\}'):
        check_header_names(["topic", "headers.Trace-Id"])
    with pytest.raises(OptionError, match=r"option headers\.Trace-Id"):
        sink_options({"kafka.bootstrap.servers": "a:1", "headers.Trace-Id": "42"})
    check_header_names(["Headers.trace", "KAFKA.Acks"])


def test_column_names_are_text_with_commas_or_a_sequence() -> None:
    assert options(key__columns=" id , Region").key_columns == ("id", "Region")
    assert options(value__columns=["a,b", "c"]).value_columns == ("a,b", "c")
    assert "option key.columns: '' is not the name of a column" in refused(key__columns="id,")
    assert "option key.columns: names column id twice" in refused(key__columns="id,id")
    assert "option value.columns: must name at least one column" in refused(value__columns=[])
    assert "option tombstone.column: 5 is not the name of a column" in refused(tombstone__column=5)


def test_listed_columns_are_json_objects_and_are_found_as_spark_finds_columns() -> None:
    record = options(key__columns="REGION,id", value__columns="id,amount", tombstone__column="Deleted")
    assert sink_schema(ORDERS, "orders", record=record) == SinkSchema(
        key=ColumnGroup((1, 0), ("Region", "id"), as_json=True),
        value=ColumnGroup((0, 2), ("id", "amount"), as_json=True),
        tombstone=3,
    )
    one = sink_schema(ORDERS, "orders", record=options(value__columns="id"))
    assert one.value == ColumnGroup((0,), ("id",), as_json=True)
    with pytest.raises(SchemaError, match=r"there is no column REGION"):
        sink_schema(ORDERS, "orders", record=record, case_sensitive=True)


def test_a_serializer_gets_one_column_as_it_is_and_several_as_a_struct() -> None:
    record = options(key__columns="id", value__columns="id,Region")
    found = sink_schema(ORDERS, "orders", {"key": LongSerializer(), "value": JsonSerializer()}, record=record)
    assert found == SinkSchema(key=0, value=ColumnGroup((0, 1), ("id", "Region"), as_json=False))

    with pytest.raises(SchemaError, match="column Region: is string, which LongSerializer does not accept"):
        sink_schema(ORDERS, "orders", {"value": LongSerializer()}, record=options(value__columns="Region"))
    with pytest.raises(SchemaError, match=r"option value\.columns: LongSerializer does not accept several columns .* name one"):
        sink_schema(ORDERS, "orders", {"value": LongSerializer()}, record=record)


def test_an_unknown_column_is_named_with_the_nearest_one() -> None:
    assert "option key.columns: there is no column idd; did you mean id?" in refused_columns(key__columns="idd")
    text = refused_columns(value__columns="xyz")
    assert "option value.columns: there is no column xyz; the columns are id, Region, amount" in text
    assert "option tombstone.column: there is no column gone" in refused_columns(value__columns="id", tombstone__column="gone")


def test_a_column_that_is_there_twice_is_refused_only_where_it_is_named() -> None:
    twice = with_column("ID", t.LongType())
    assert "option key.columns: id matches 2 columns (id, ID); drop or rename" in refused_columns(twice, key__columns="id")
    assert sink_schema(twice, "t", record=options(value__columns="Region")).value == ColumnGroup((1,), ("Region",), as_json=True)


def test_a_column_that_is_named_twice_in_different_case_is_refused() -> None:
    """It would be two fields of the same name in the JSON object."""
    assert "option key.columns: names column id twice" in refused_columns(key__columns="id,ID", value__columns="id")


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_part_has_one_source(part: str) -> None:
    both = with_column(part.upper(), t.StringType())
    text = refused_columns(both, **{f"{part}__columns": "id"})
    assert f"option {part}.columns: the DataFrame also has a column {part.upper()}; drop or rename it, or remove" in text
    record = options(**{"value__columns": "id", f"{part}__columns": f"id,{part}"})
    assert getattr(sink_schema(both, "t", record=record), part) == ColumnGroup((0, 6), ("id", part.upper()), as_json=True)


def test_types_that_json_cannot_hold_are_refused() -> None:
    assert "column term is interval year to month, which no serializer accepts; use cast(term as string)" in refused_columns(
        value__columns="id,term"
    )
    assert "column pause is interval day to second, which cannot be written as JSON" in refused_columns(value__columns="pause")


def test_a_tombstone_column_is_boolean_and_needs_a_key() -> None:
    assert "option tombstone.column: column id is bigint, must be boolean; use cast(id as boolean)" in refused_columns(
        key__columns="id", value__columns="id", tombstone__column="id"
    )
    uncast = refused_columns(key__columns="id", value__columns="id", tombstone__column="term")
    assert uncast.endswith("column term is interval year to month, must be boolean")
    assert "option tombstone.column: tombstones need a key; add a column key or set the option key.columns" in refused_columns(
        value__columns="id", tombstone__column="deleted"
    )
