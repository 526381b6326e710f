"""DataFrames of records, and readers of the written records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

# An hour ago: Kafka deletes records by their timestamps, after seven days if a topic says nothing else.
BASE_MS = time.time_ns() // 1_000_000_000 * 1000 - 3_600_000


def options(kafka: Kafka, **more: str) -> dict[str, str]:
    """Returns the sink's options. In a name, `__` stands for a dot."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    """Returns `count` records whose value equals the key."""
    return spark.range(0, count, 1, tasks).selectExpr("string(id) AS key", "string(id) AS value")


def records(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Returns records with every column, some null keys, values and headers, timestamps with microseconds, and partitions."""
    return (
        spark.range(0, count, 1, 2)
        .withColumn("key", F.expr("IF(id % 3 = 0, NULL, string(id))"))
        .withColumn("value", F.expr("IF(id % 5 = 0, NULL, encode(concat('value ü ', id), 'UTF-8'))"))
        .withColumn("headers", F.expr(_HEADERS))
        .withColumn("timestamp", F.expr(f"timestamp_micros(({BASE_MS} + id) * 1000 + 999)"))
        .withColumn("partition", F.expr(f"int(id % {partitions})"))
    )


_HEADERS = """CASE id % 4
  WHEN 0 THEN NULL
  WHEN 1 THEN array()
  ELSE array(named_struct('key', 'n', 'value', binary(string(id))), named_struct('key', '', 'value', CAST(NULL AS BINARY)))
END"""


def expected(count: int, partitions: int) -> list[Any]:
    """Returns `records` as they must be in Kafka: (partition, key, value, headers, timestamp), by timestamp."""
    return [
        (
            row % partitions,
            None if row % 3 == 0 else str(row).encode(),
            None if row % 5 == 0 else f"value ü {row}".encode(),
            () if row % 4 < 2 else (("n", str(row).encode()), ("", None)),
            BASE_MS + row,
        )
        for row in range(count)
    ]


def save(df: DataFrame, settings: Mapping[str, str], mode: str = "append") -> None:
    df.write.format("kafka_sink").options(**settings).mode(mode).save()


def parquet_stream(spark: SparkSession, df: DataFrame, folder: Path) -> DataFrame:
    """Returns the rows of `df` as a stream of Parquet files, a file a micro-batch."""
    df.write.parquet(str(folder / "input"))
    return spark.readStream.schema(df.schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))


def run(writer: DataStreamWriter, folder: Path) -> StreamingQuery:
    """Writes all that is there, then ends."""
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def read_records(kafka: Kafka, topic: str) -> list[Any]:
    """Returns the records in Kafka, in the same form."""
    found = read_topic(kafka.bootstrap_servers, topic)
    whole = [(one.partition, one.key, one.value, one.headers, one.timestamp) for one in found]
    return sorted(whole, key=lambda record: record[-1])


def read_values(kafka: Kafka, topic: str) -> list[int]:
    """Returns the values, which are numbers, in order."""
    return sorted(int(record.value or b"") for record in read_topic(kafka.bootstrap_servers, topic))
