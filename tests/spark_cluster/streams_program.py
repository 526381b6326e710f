"""The program that spark-submit runs: streams from the same rows to several topics, until it is told to stop.

It runs where nothing of this checkout is importable. Its argument is a plan in JSON:

rows: the folder with the rows. files: how many of them are in a micro-batch. keys: see NumberedRows. streams: the options of each
sink, by the name of its query. checkpoints: the folder of their checkpoints. stop: a file; once it exists, the rows are finished.
result: the file for what the program says at its end.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

POLL_S = 0.2
PROBES = 8


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    from pyspark.sql import SparkSession

    import spark_kafka_sink as sks

    spark = SparkSession.builder.appName("streams").getOrCreate()
    metrics = sks.register(spark)
    queries = [_start(spark, plan, name, options) for name, options in plan["streams"].items()]
    while not Path(plan["stop"]).exists():
        for query in queries:
            query.awaitTermination(POLL_S)  # raises what the query failed with
            assert query.isActive, f"{query.name} has ended"
    for query in queries:
        query.processAllAvailable()
    places = spark.sparkContext.parallelize(range(PROBES), PROBES).map(_place).collect()
    for query in queries:
        query.stop()
    result = {"places": places, "committed": _by_topic(metrics.committed), "live": _by_topic(metrics.live)}
    result["ids"] = {query.name: query.id for query in queries}
    spark.stop()  # the event log is complete
    Path(plan["result"]).write_text(json.dumps(result))


def _start(spark: Any, plan: Any, name: str, options: dict[str, str]) -> Any:
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", str(plan["files"])).load(plan["rows"])
    records = lines.selectExpr(f"cast(cast(value as bigint) % {plan['keys']} as string) as key", "value")
    writer = records.writeStream.queryName(name).format("kafka_sink").options(**options)
    return writer.option("checkpointLocation", f"{plan['checkpoints']}/{name}").start()


def _place(_: int) -> dict[str, Any]:
    """Where a task's Python finds its code."""
    import os

    import pyarrow

    import spark_kafka_sink

    modules = [spark_kafka_sink.__file__, pyarrow.__file__]
    return {"folder": os.getcwd(), "modules": modules, "path": sys.path, "pid": os.getpid()}


def _by_topic(report: Any) -> dict[str, int]:
    counts = Counter[str]()
    for (topic, _), partition in report.partitions.items():
        counts[topic] += partition.records
    return dict(counts)


if __name__ == "__main__":
    main()
