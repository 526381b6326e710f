"""The examples of a comparison: what differs, with one record of each kind."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_kafka_sink.verify.comparison import Side, examples_of, hashed_records

pytestmark = pytest.mark.spark


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
