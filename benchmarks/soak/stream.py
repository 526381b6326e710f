"""A driver program of the soak run: one stream of numbered rows into the sink, until its stdin ends.

`python -m benchmarks.soak.stream SETTINGS`, where SETTINGS is a `Stream` as JSON. Its last line of stdout is the number of rows
in the micro-batches that Spark has committed. After a failure the exit code is 1, and stderr has the error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEYS = 1_000
TASKS = 2
SECONDS_A_BATCH = 1
# Java asks for its heap at once. Otherwise it grows for minutes, whatever the sink does.
HEAP = "1g"


@dataclass(frozen=True, slots=True)
class Stream:
    """Settings of a stream. rows: of a micro-batch, of which one is due each second."""

    name: str
    guarantee: str
    topic: str
    bootstrap_servers: str
    checkpoint: str
    rows: int

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def committed_rows(checkpoint: Path, rows: int) -> int:
    """Returns how many rows the micro-batches have that the checkpoint lists as committed. Each has `rows`, numbered from 0."""
    batches = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdigit()]
    return (max(batches) + 1) * rows if batches else 0


def start(spark: SparkSession, stream: Stream) -> StreamingQuery:
    """Starts the query. Row n has the key n modulo KEYS, and n as text of 100 characters as its value."""
    numbers = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", stream.rows).option("numPartitions", TASKS).load()
    )
    records = numbers.selectExpr(f"cast(value % {KEYS} as string) as key", "lpad(cast(value as string), 100, '0') as value")
    writer = records.writeStream.format("kafka_sink").option("kafka.bootstrap.servers", stream.bootstrap_servers)
    writer = writer.option("topic", stream.topic).option("delivery.guarantee", stream.guarantee)
    writer = writer.option("checkpointLocation", stream.checkpoint).trigger(processingTime=f"{SECONDS_A_BATCH} seconds")
    return writer.start()


def main() -> int:
    from pyspark.sql import SparkSession

    import spark_kafka_sink as sks

    stream = Stream(**json.loads(sys.argv[1]))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Java prints is no result
    spark = (
        SparkSession.builder.appName(stream.name)
        .master(f"local[{TASKS}]")
        .config("spark.driver.memory", HEAP)
        .config("spark.driver.extraJavaOptions", f"-Xms{HEAP} -XX:+AlwaysPreTouch")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.streaming.minBatchesToRetain", "10")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sks.register(spark)
    query = start(spark, stream)
    asked = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        asked.set()
        query.stop()

    threading.Thread(target=wait_for_the_end, name="end-of-stdin", daemon=True).start()
    try:
        query.awaitTermination()
    except Exception as error:
        print(sks.explain(error), file=sys.stderr)
        return 1
    if not asked.is_set():
        print("the query ended by itself", file=sys.stderr)
        return 1
    out.write(f"{committed_rows(Path(stream.checkpoint), stream.rows)}\n")
    out.flush()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
