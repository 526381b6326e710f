"""Fields of what is written, as lineage shows them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import types as t

from spark_kafka_sink.formats.schemas.resolved_schema import ResolvedSchema
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.destination import Destination, Field, destination, schema_fields
from spark_kafka_sink.spark.schema import SinkSchema, sink_schema

OPTIONS = {"kafka.bootstrap.servers": "a:1,b:2", "topic": "events"}
STRUCT = t.StructType(
    [
        t.StructField("unused", t.LongType()),
        t.StructField("key", t.StringType(), metadata={"comment": "the customer"}),
        t.StructField("id", t.LongType()),
        t.StructField("inner", t.StructType([t.StructField("x", t.ArrayType(t.IntegerType()))])),
    ]
)


def resolved(form: str, text: object) -> ResolvedSchema:
    return ResolvedSchema("value", form, "s", 1, text if isinstance(text, str) else json.dumps(text))


def fields(form: str, text: object) -> list[Any]:
    return [one.to_list() for one in schema_fields(resolved(form, text))]


def test_the_fields_are_the_columns_that_are_written() -> None:
    options = sink_options({**OPTIONS, "value.columns": "id,inner"})
    found = destination(options, sink_schema(STRUCT, "events", record=options.record), STRUCT)
    inner = Field("inner", "struct", "", (Field("x", "array<int>"),))
    columns = (Field("key", "string", "the customer"), Field("id", "bigint"), inner)
    assert found == Destination(("a:1", "b:2"), "events", None, columns)
    assert Destination.from_list(json.loads(json.dumps(found.to_list()))) == found


def test_the_dead_letter_topic_and_the_trace_belong_to_it() -> None:
    more = {"on.error": "dead-letter", "dead.letter.topic": "letters", "trace.parent": f"00-{'1' * 32}-{'2' * 16}-01"}
    found = destination(sink_options({**OPTIONS, **more}), SinkSchema(value=1), STRUCT)
    assert (found.letters, found.parent, found.context) == ("letters", more["trace.parent"], "")


def test_the_fields_of_an_avro_record() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    record = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "long", "doc": "number"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "inner", "type": ["null", inner]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "by", "type": {"type": "map", "values": "double"}},
        ],
    }
    assert fields("avro", record) == [
        ["id", "long", "number", []],
        ["at", "union<null,timestamp-micros>", "", []],
        ["inner", "union<null,record>", "", [["x", "int", "", []]]],
        ["tags", "array<string>", "", []],
        ["by", "map<double>", "", []],
    ]


def test_the_properties_of_a_json_schema() -> None:
    inner = {"type": "object", "properties": {"x": {"type": ["null", "integer"]}}}
    found = fields("json-schema", {"type": "object", "properties": {"a": {"description": "first"}, "inner": inner, "any": True}})
    assert found == [
        ["a", "any", "first", []],
        ["inner", "object", "", [["x", "union<null,integer>", "", []]]],
        ["any", "any", "", []],
    ]


@pytest.mark.parametrize("text", ['"string"', "{}", "[1]", "nothing", '{"type": "record"}', '{"type": "record", "fields": [1]}'])
def test_anything_else_has_none(text: str) -> None:
    assert fields("avro", text) == fields("json-schema", text) == fields("protobuf", text) == []
    assert schema_fields(None) == ()
