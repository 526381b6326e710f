"""Records with schemas are read back by Confluent's deserializers and compared as values, field by field."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedRegistry
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.verify import read_back
from spark_kafka_sink.verify.comparison import Comparison
from spark_kafka_sink.verify.read_back import whole_topic
from spark_kafka_sink.verify.topic_records import compare_with_topic
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.registry.stand_in import StandIn
from tests.spark.frames import options

pytestmark = pytest.mark.spark

COLUMNS = [
    "id",
    "id % 2 = 0 AS flag",
    "tinyint(id) AS tiny",
    "int(id) AS whole",
    "float(id / 3) AS single",
    "IF(id = 3, double('NaN'), double(id) / 3) AS double",
    "IF(id % 3 = 0, NULL, concat('ü', id)) AS text",
    "IF(id % 4 = 0, NULL, binary(string(id))) AS bytes",
    "cast(id AS decimal(38, 10)) / 4 AS amount",
    "date_add(date'1969-12-30', int(id)) AS day",
    "timestamp_micros(1700000000000001 * (id - 1)) AS at",
    "cast(timestamp_micros(id) AS timestamp_ntz) AS local",
    "named_struct('x', int(id), 'tags', array('a', NULL, string(id)), 'none', cast(NULL AS int)) AS inner",
    "array(named_struct('price', cast(id AS decimal(9, 2)))) AS lines",
    "IF(id % 5 = 0, NULL, map('k', double(id), 'a', NULL)) AS by_name",
    "map('m', array(named_struct('at', timestamp_micros(id)))) AS deep",
    "named_struct('id', id) AS key",
]
ROWS = 12
COMPARED = ("key", "value", "headers")


def rows(spark: SparkSession, *more: str) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).selectExpr(*COLUMNS, *more)


def compared(df: DataFrame, settings: dict[str, str], columns: tuple[str, ...] = COMPARED) -> Comparison:
    topic = whole_topic(settings["topic"], {"bootstrap.servers": settings["kafka.bootstrap.servers"]})
    return compare_with_topic(df, sink_options(settings), topic, columns=columns)


@pytest.fixture
def settings(kafka: Kafka, new_topic: NewTopic, stand_in: StandIn) -> dict[str, str]:
    return options(
        kafka,
        topic=new_topic(2),
        value__format="avro",
        key__format="avro",
        schema__registry__url=stand_in.url,
        headers__source="x",
    )


def test_records_of_every_type_are_found_as_they_were_written(
    spark: SparkSession, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks read parts of partitions, and an example names the partition and the offset."""
    monkeypatch.setattr(read_back, "OFFSETS_A_TASK", 5)
    df = rows(spark)
    sks.publish(df, options=settings, progress=False)

    found = compared(df, settings)

    assert (found.expected, found.found, found.examples) == (ROWS, ROWS, ())
    assert found.same()
    (example,) = compared(df.where("id < 11"), settings).examples
    assert re.match(r"partition [01], offset [0-9]+: expected 0, found 1: key=\{\"id\": 11\}, ", example), example


@pytest.mark.whole("14 s; tests/cli/test_verify_with_registry.py decodes all three formats, tests/verify compares their values")
def test_json_schema_is_read_back(spark: SparkSession, settings: dict[str, str]) -> None:
    named = {**settings, "value.format": "json-schema", "key.format": "json-schema"}
    amount = "cast(concat('12345678901234567', id, '.012345678', IF(id = 3, {}, 9)) AS decimal(38, 10)) AS amount"
    df = rows(spark).drop("double", "amount").selectExpr("*", amount.format(9))
    sks.publish(df, options=named, progress=False)

    found = compared(df, named)

    assert found.examples == ()
    assert found.same()
    (example,) = compared(df.selectExpr("* EXCEPT (amount)", amount.format(8)), named).examples
    places = 'expected "123456789012345673.0123456788", found "123456789012345673.0123456789"'
    assert example.endswith(f': key={{"id": 3}} differs: value.amount: {places}')


PROTOBUF_COLUMNS = [
    *(each for each in COLUMNS if not each.startswith(("named_struct", "IF(id % 5", "map"))),
    "named_struct('x', int(id), 'tags', array('a', string(id)), 'at', timestamp_micros(-id)) AS inner",
    "IF(id % 5 = 0, NULL, map('k', double(id))) AS by_name",
    "IF(id % 4 = 0, NULL, array(id, 0)) AS numbers",
    "make_dt_interval(int(id), 0, 0, 1.5) AS lasted",
    "string(id) AS key",
]


@pytest.mark.whole("14 s; tests/cli/test_verify_with_registry.py decodes all three formats, tests/verify compares their values")
def test_protobuf_is_read_back(spark: SparkSession, settings: dict[str, str]) -> None:
    named = {**settings, "value.format": "protobuf"}
    del named["key.format"]
    df = spark.range(0, ROWS, 1, 1).selectExpr(*PROTOBUF_COLUMNS)
    sks.publish(df, options=named, progress=False)

    found = compared(df, named)

    assert found.examples == ()
    assert found.same()
    other = df.withColumn("lasted", F.expr("IF(id = 3, lasted + interval 1 second, lasted)"))
    assert "value.lasted: expected " in compared(other, named).examples[0]


@pytest.mark.whole("20 s; test_header_ids.py of the producer writes them, and tests/verify reads them")
def test_ids_in_headers_are_read(spark: SparkSession, settings: dict[str, str], kafka_schema_registry: EmbeddedRegistry) -> None:
    named = {**settings, "schema.id.serializer": "header", "schema.registry.url": kafka_schema_registry.url}
    sks.publish(rows(spark), options=named, progress=False)

    found = compared(rows(spark), named)

    assert found.examples == ()
    assert found.same()
