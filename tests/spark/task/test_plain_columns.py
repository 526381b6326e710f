"""Records of plain columns: JSON as Spark's to_json makes it, tombstones and fixed headers, read back by another client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_kafka_sink as sks
from spark_kafka_sink.errors import OptionError, SchemaError
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.spark.frames import options, save

pytestmark = pytest.mark.spark

RECORD = {
    "key.columns": "region,id",
    "value.columns": "id,name,amount,share,day,tags,inner,flags,odd.name",
    "tombstone.column": "deleted",
    "headers.source": "billing",
    "headers": '{"Trace-Id": "42"}',
}
FIXED = (("Trace-Id", b"42"), ("source", b"billing"))

Write = Callable[[DataFrame, dict[str, str]], object]


def orders(spark: SparkSession) -> DataFrame:
    """Types whose JSON is the same in Spark and in Python, with nulls at every level."""
    return (
        spark.range(0, 200, 1, 2)
        .withColumn("region", F.expr("IF(id % 7 = 0, NULL, concat('r\"ü', id % 3))"))
        .withColumn("name", F.expr("IF(id % 5 = 0, NULL, concat('line\\n', id))"))
        .withColumn("amount", F.expr("cast(id / 4 as decimal(10, 2))"))
        .withColumn("share", F.expr("IF(id % 11 = 0, NULL, id / 8)"))
        .withColumn("day", F.expr("date_add(DATE'2026-01-01', int(id))"))
        .withColumn("tags", F.expr("CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array('a', NULL, string(id)) END"))
        .withColumn("inner", F.expr("named_struct('x', IF(id % 3 = 0, NULL, id), 'y', id % 2 = 0)"))
        .withColumn("flags", F.expr("IF(id % 6 = 0, NULL, map('k', id, 'none', CAST(NULL AS BIGINT)))"))
        .withColumn("odd.name", F.expr("binary(string(id))"))
        .withColumn("deleted", F.expr("CASE id % 10 WHEN 0 THEN true WHEN 1 THEN NULL ELSE false END"))
        .withColumn("headers", F.expr("IF(id % 2 = 0, array(named_struct('key', 'own', 'value', binary(string(id)))), NULL)"))
    )


@pytest.fixture(scope="module")
def expected(spark: SparkSession) -> list[tuple[object, ...]]:
    """Key, value and headers of each record, by Spark's own functions."""
    made = orders(spark).selectExpr(
        "to_json(struct(region, id)) AS key",
        "IF(deleted, NULL, to_json(struct(id, name, amount, share, day, tags, inner, flags, `odd.name`))) AS value",
        "IF(id % 2 = 0, string(id), NULL) AS own",
    )
    return sorted(
        (row.key, row.value or "", FIXED if row.own is None else (("own", row.own.encode()), *FIXED)) for row in made.collect()
    )


def partition_writer(df: DataFrame, settings: dict[str, str]) -> None:
    df.foreachPartition(sks.partition_writer(settings))


@pytest.mark.parametrize("write", [save, partition_writer])
def test_keys_and_values_are_what_to_json_makes_of_their_columns(
    spark: SparkSession, kafka: Kafka, new_topic: NewTopic, write: Write, expected: list[tuple[object, ...]]
) -> None:
    topic = new_topic(3)

    write(orders(spark), {**options(kafka, topic=topic), **RECORD})

    found = read_topic(kafka.bootstrap_servers, topic)
    assert sum(record.value is None for record in found) == 20
    texts = [((one.key or b"").decode(), (one.value or b"").decode(), one.headers) for one in found]
    assert sorted(texts) == expected


def test_mistakes_end_before_any_task(spark: SparkSession, kafka: Kafka) -> None:
    df, settings = spark.range(1), options(kafka, topic="t")
    with pytest.raises(PySparkException, match=r"\[SCHEMA\] option value\.columns: there is no column ids; did you mean id\?"):
        save(df, {**settings, "value.columns": "ids"})
    with pytest.raises(SchemaError, match=r"option value\.columns: there is no column ids"):
        sks.publish(df, options={**settings, "value.columns": "ids"})
    with pytest.raises(OptionError, match=r"option headers\.Source: Spark changes option names to lower case"):
        sks.foreach_batch({**settings, "headers.Source": "x"})
