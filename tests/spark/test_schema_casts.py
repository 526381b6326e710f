from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.spark.schema import sink_schema

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("column", "expression"),
    [
        ("value", "5"),
        ("value", "current_date()"),
        ("value", "timestamp_ntz '2026-01-01 00:00:00'"),
        ("value", "named_struct('a', 1)"),
        ("key", "map('a', 1)"),
        ("key", "parse_json('{}')"),
        ("topic", "binary('t')"),
        ("partition", "bigint(1)"),
        ("partition", "'1'"),
        ("timestamp", "current_date()"),
        ("timestamp", "timestamp_ntz '2026-01-01 00:00:00'"),
        ("timestamp", "parse_json('\"2026-01-01 00:00:00\"')"),
        ("timestamp", "'2026-01-01'"),
        ("timestamp", "smallint(1)"),
        ("headers", "map('a', 'b')"),
        ("headers", "map('a', binary('b'))"),
        ("headers", "'b'"),
        ("headers", "array()"),
        ("headers", "array(named_struct('k', 'a', 'v', 'b'))"),
        ("headers", "array('b')"),
        ("headers", "array(map('a', 'b'))"),
        ("headers", "array(named_struct('key', 'a'))"),
    ],
)
def test_the_cast_that_an_error_names_mends_the_column(spark: SparkSession, column: str, expression: str) -> None:
    others = [f"'' AS {name}" for name in ("value", "topic") if name != column]
    df = spark.range(1).selectExpr(f"{expression} AS {column}", *others)
    with pytest.raises(SchemaError) as caught:
        sink_schema(df.schema, None)
    _, cast = caught.value.message.split("; use ")
    mended = df.withColumn(column, F.expr(cast))
    sink_schema(mended.schema, None)
    mended.collect()
