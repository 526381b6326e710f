"""The records: 10-byte keys and values of hexadecimal digits, the same in every run and on every machine."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

KEY_BYTES = 10


def records(spark: SparkSession, rows: int, value_bytes: int) -> DataFrame:
    """Returns `rows` rows of binary key and value, with one partition per core.

    A value is 100 digits that no other row has; longer values repeat them, so that 1 KB compresses well and 100 B hardly.
    """
    digits = "concat(sha2(cast(id as string), 256), substr(sha2(cast(-id - 1 as string), 256), 1, 36))"
    value = F.expr(f"rpad({digits}, {value_bytes}, {digits})")  # repeat and substr take 4 times as long at 100 KB
    key = F.substring(F.md5(F.col("id").cast("string").cast("binary")), 1, KEY_BYTES)
    return spark.range(rows).select(key.cast("binary").alias("key"), value.cast("binary").alias("value"))


def cached(spark: SparkSession, rows: int, value_bytes: int) -> DataFrame:
    """Returns the same rows, cached in memory."""
    frame = records(spark, rows, value_bytes).cache()
    frame.count()
    return frame


def repeated(frame: DataFrame, times: int) -> DataFrame:
    """Returns the rows of a cached DataFrame several times, in as many tasks as it has."""
    partitions = frame.rdd.getNumPartitions()
    result = frame
    for _ in range(times - 1):
        result = result.unionAll(frame)
    return result.coalesce(partitions)
