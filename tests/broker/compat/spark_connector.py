"""Run as a program, with Spark's own Kafka connector on the class path: writes a topic and reads it back, in batches.

Arguments: bootstrap servers, topic. Prints one line of JSON for each reading: all, and the first ten of each partition.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

ROWS = 100


def main(servers: str, topic: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    where = {"kafka.bootstrap.servers": servers}
    rows = spark.range(ROWS).selectExpr("cast(id as string) key", "concat('value ', id) value", "int(id % 3) partition")
    rows.write.format("kafka").options(**where, topic=topic).save()
    source = where | {"subscribe": topic, "startingOffsets": "earliest"}
    _print(spark.read.format("kafka").options(**source).load())
    ending = json.dumps({topic: {str(partition): 10 for partition in range(3)}})
    _print(spark.read.format("kafka").options(**source, endingOffsets=ending).load())
    spark.stop()


def _print(found: DataFrame) -> None:
    rows = found.select("key", "value", "partition", "offset").collect()
    print(json.dumps(sorted((_plain(row) for row in rows), key=lambda row: int(row[0]))), flush=True)


def _plain(row: Row) -> list[Any]:
    return [bytes(row["key"]).decode(), bytes(row["value"]).decode(), row["partition"], row["offset"]]


if __name__ == "__main__":
    main(*sys.argv[1:])
