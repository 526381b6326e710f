"""The examples of a comparison: what differs, with one record of each kind."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_kafka_sink.verify.comparison import Side, _expected_records, _hashed, examples_of

pytestmark = pytest.mark.spark


def test_one_record_of_each_kind_comes_to_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of equal records, one of them missing, would not fit into the driver's memory."""
    wanted = _expected_records(spark.range(1_000).selectExpr("'k' AS key", "'v' AS value"))
    compared = ("key", "value")
    counted = (
        _hashed(wanted, compared).groupBy("hash", "key_hash", "partition").agg(F.count("*").alias("e"), F.lit(999).alias("f"))
    )
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
