"""Serializers chosen by options: the driver checks columns against them, and every way of writing sends their bytes to Kafka."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as t

import spark_kafka_sink as sks
from spark_kafka_sink.errors import OptionError, SchemaError, SerializationError
from spark_kafka_sink.spark.driver.partition_writer import batches_of_rows
from spark_kafka_sink.spark.plugin_checks import checked_options, serializers_by_column
from spark_kafka_sink.spark.schema import sink_schema
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import options, save
from tests.spark.session import setting

JAVA = "org.apache.kafka.common.serialization."
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
LONG_AND_JSON = {"kafka.key.serializer": f"{JAVA}LongSerializer", "kafka.value.serializer": "json"}


def made(**names: str) -> dict[str, Any]:
    """Serializers by column, as options make them; `__` stands for a dot."""
    settings = {f"kafka.{name.replace('__', '.')}": value for name, value in names.items()}
    return serializers_by_column(checked_options({**SERVERS, **settings}).producer)


def refused(kind: t.DataType, name: str, **more: str) -> str:
    schema = t.StructType([t.StructField("value", kind)])
    with pytest.raises(SchemaError) as caught:
        sink_schema(schema, "events", made(value__serializer=name, **more))
    return caught.value.message


LONGS = t.ArrayType(t.LongType())
POINT = t.StructType([t.StructField("x", t.DoubleType()), t.StructField("at", t.TimestampType())])
MANY_KINDS = t.StructType(
    [
        t.StructField("point", POINT),
        t.StructField("by_name", t.MapType(t.StringType(), t.ArrayType(t.DecimalType(10, 2)))),
        t.StructField("day", t.DateType()),
        t.StructField("local", t.TimestampNTZType()),
        t.StructField("blob", t.BinaryType()),
        t.StructField("flag", t.BooleanType()),
        t.StructField("nothing", t.NullType()),
    ]
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("long", t.LongType()),
        ("long", t.ByteType()),
        ("int", t.ShortType()),
        ("short", t.ShortType()),
        ("double", t.FloatType()),
        ("float", t.FloatType()),
        ("boolean", t.BooleanType()),
        ("string", t.StringType()),
        ("uuid", t.StringType()),
        ("bytearray", t.BinaryType()),
        ("list", LONGS),
        ("list", t.ArrayType(t.IntegerType())),
        ("void", LONGS),
        ("json", MANY_KINDS),
        ("json", LONGS),
        ("json", t.StringType()),
        ("long", t.NullType()),
    ],
)
def test_a_column_may_have_the_types_that_its_serializer_takes(name: str, kind: t.DataType) -> None:
    schema = t.StructType([t.StructField("value", kind), t.StructField("key", kind)])
    serializers = made(value__serializer=name, key__serializer=name, **INNER)
    assert sink_schema(schema, "events", serializers).value == 0


INNER = {"default__list__value__serde__inner": "long", "default__list__key__serde__inner": "long"}


@pytest.mark.parametrize(
    ("name", "kind", "end"),
    [
        ("json", t.VariantType(), "(no serializer accepts variant); use to_json(value) without kafka.value.serializer"),
        ("json", t.MapType(t.IntegerType(), t.StringType()), "; use to_json(value) without kafka.value.serializer"),
        ("long", t.DateType(), "(a column of type date32[day] is not supported, must be int64 or narrower; cast it to int64)"),
        ("long", POINT, "must be int64 or narrower; cast it to int64)"),
        ("list", t.MapType(t.StringType(), t.LongType()), "a list of a 64-bit integer)"),
        ("json", t.StructType([t.StructField("a", t.VariantType())]), "; use to_json(value) without kafka.value.serializer"),
        ("void", t.ArrayType(t.VariantType()), "(no serializer accepts array<variant>)"),
    ],
)
def test_a_type_that_no_cast_mends_has_none(name: str, kind: t.DataType, end: str) -> None:
    assert refused(kind, name, **INNER).endswith(end)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("lnog", "option kafka.value.serializer: 'lnog' is not a known serializer; did you mean long?"),
        (
            f"{JAVA}LnogSerializer",
            f"Java class {JAVA}LnogSerializer has no equivalent here; did you mean {JAVA}LongSerializer?",
        ),
        ("io.confluent.kafka.serializers.KafkaAvroSerializer", "use value.format=avro"),
        ("io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer", "use value.format=protobuf"),
        ("io.confluent.kafka.serializers.KafkaXmlSerializer", "has no equivalent here"),
        ("list", "option kafka.default.list.value.serde.inner: required by the list serializer"),
    ],
)
def test_an_unknown_serializer_is_refused_in_the_driver(name: str, problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        checked_options({**SERVERS, "kafka.value.serializer": name})
    assert problem in caught.value.message


class Counted(sks.Serializer):
    closed = 0

    def serialize(self, topic: str, value: Any, headers: Any = ()) -> bytes | None:
        return b""

    def close(self) -> None:
        type(self).closed += 1


def test_the_driver_closes_what_it_made_to_ask_it_and_no_object_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "closed", 0)
    checked_options({**SERVERS, "kafka.key.serializer": Counted})
    assert Counted.closed == 1
    checked_options({**SERVERS, "kafka.key.serializer": Counted()})
    assert Counted.closed == 1


# Against Kafka

ROWS = 300
EXPRESSIONS = [
    "id AS key",
    "IF(id % 7 = 0, NULL, named_struct('n', id, 'text', IF(id % 2 = 0, NULL, concat('ü\"', id)), 'list', array(id, NULL)))"
    " AS value",
]
WANTED: list[Any] = [
    None if n % 7 == 0 else {"n": n, **({} if n % 2 == 0 else {"text": f'ü"{n}'}), "list": [n, None]} for n in range(ROWS)
]


def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr(*EXPRESSIONS)


def assert_written(kafka: Kafka, topic: str) -> None:
    found = {struct.unpack(">q", one.key or b"")[0]: one.value for one in read_topic(kafka.bootstrap_servers, topic)}
    assert [None if (value := found[n]) is None else json.loads(value) for n in range(ROWS)] == WANTED


@pytest.mark.spark
def test_long_keys_and_json_values_reach_kafka(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    sks.publish(frame(spark), options={**options(kafka, topic=topic), **LONG_AND_JSON})
    assert_written(kafka, topic)


@pytest.mark.spark
def test_rows_of_two_topics_and_of_large_types_keep_their_structs(spark: SparkSession, kafka: Kafka, new_topic: NewTopic) -> None:
    even, odd = new_topic(1), new_topic(100)  # a hundred partitions: rows are gathered
    df = spark.range(0, 200, 1, 1).selectExpr(
        f"IF(id % 2 = 0, '{even}', '{odd}') AS topic", "array(string(id), NULL) AS key", "named_struct('n', string(id)) AS value"
    )
    settings = options(
        kafka,
        kafka__key__serializer="list",
        kafka__value__serializer="json",
        kafka__default__list__key__serde__inner=f"{JAVA}Serdes$StringSerde",
    )
    with setting(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):
        save(df, settings)
    for topic, first in ((even, 0), (odd, 1)):
        assert sorted((one.value, one.key) for one in read_topic(kafka.bootstrap_servers, topic)) == sorted(
            (b'{"n":"%d"}' % n, struct.pack(f">bii{len(str(n))}si", 1, 2, len(str(n)), str(n).encode(), -1))
            for n in range(first, 200, 2)
        )


# Rows


def test_rows_are_serialized_one_by_one() -> None:
    rows = [Row(key=1, value=Row(a=None, b=[1])), Row(key=None, value=None)]
    ((_, batch),) = batches_of_rows(rows, "events", made(key__serializer="int", value__serializer="json"))
    assert batch.to_pylist() == [{"key": struct.pack(">i", 1), "value": b'{"b":[1]}'}, {"key": None, "value": None}]


def test_a_row_that_its_serializer_does_not_take_is_counted_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_kafka_sink.spark.driver.partition_writer.CHUNK_ROWS", 3)
    rows = [*(Row(topic="a", value=n) for n in range(7)), Row(topic="b", value="7")]
    with pytest.raises(
        SerializationError,
        match="row 7 of the data: topic b: value: a value of type str is not",
    ):
        list(batches_of_rows(rows, None, made(value__serializer="long")))
