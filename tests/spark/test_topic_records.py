"""Records with schemas are read back by Confluent's deserializers and compared as values, field by field."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_kafka_sink as sks
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.verify import read_back
from spark_kafka_sink.verify.comparison import Comparison, Side, examples_of, hashed_records
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


@pytest.mark.whole("an example of the docs")
def test_one_record_of_each_kind_comes_to_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of equal records, one of them missing, would not fit into the driver's memory."""
    wanted = spark.range(1_000).selectExpr("binary('k') AS key", "binary('v') AS value", "cast(NULL AS int) AS partition")
    compared = ("key", "value")
    groups = hashed_records(wanted, compared).groupBy("hash", "key_hash", "partition")
    counted = groups.agg(F.count("*").alias("e"), F.lit(999).alias("f"))
    collected: list[int] = []
    collect = type(counted).collect

    def counting(frame: DataFrame) -> list[Row]:
        rows = collect(frame)
        collected.append(len(rows))
        return rows

    monkeypatch.setattr(type(counted), "collect", counting)
    (text,) = examples_of(counted, [Side(wanted), Side(wanted)], compared, 5)
    assert text == "expected 1000, found 999: key=b'k', value=b'v'"
    assert max(collected) == 1
