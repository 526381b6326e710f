"""The program that spark-submit runs: writes the same rows in every way, and says where its tasks ran.

It runs where nothing of this checkout is importable. Its argument is a plan in JSON:

rows: the folder with the rows. keys: see NumberedRows. sink: options of the sink. topics: the topic of each way and guarantee, as
"WAY GUARANTEE"; checkpoints: the folder of the streams' checkpoints. result: the file for what the program says at its end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

STREAM_DEADLINE_S = 120


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    from pyspark.sql import SparkSession

    import spark_kafka_sink as sks

    spark = SparkSession.builder.appName("every way").getOrCreate()
    metrics = sks.register(spark)
    for name, topic in plan["topics"].items():
        way, guarantee = name.split()
        options = {**plan["sink"], "topic": topic, "delivery.guarantee": guarantee}
        reader = spark.readStream if way == "stream" else spark.read
        lines = reader.format("text").load(plan["rows"])
        rows = lines.selectExpr(f"cast(cast(value as bigint) % {plan['keys']} as string) as key", "value")
        _write(way, sks, rows, options, f"{plan['checkpoints']}/{guarantee}", metrics)
    context = spark.sparkContext
    result = {
        "driver": os.getcwd(),
        "places": context.parallelize(range(4), 4).map(_place).collect(),
        "committed": {topic: sum(part.records for part in _of(metrics, topic)) for topic in plan["topics"].values()},
    }
    spark.stop()
    Path(plan["result"]).write_text(json.dumps(result))


def _write(way: str, sks: Any, rows: Any, options: dict[str, str], checkpoint: str, metrics: Any) -> None:
    if way == "publish":
        sks.publish(rows, options=options, metrics=metrics)
    elif way == "batch":
        rows.write.format("kafka_sink").options(**options).mode("append").save()
    else:
        writer = rows.writeStream.format("kafka_sink").options(**options).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(STREAM_DEADLINE_S), "the stream did not end"


def _of(metrics: Any, topic: str) -> list[Any]:
    return [part for (name, _), part in metrics.committed.partitions.items() if name == topic]


def _place(_: int) -> dict[str, str]:
    """Where a task's Python finds its code."""
    import spark_kafka_sink

    return {"folder": os.getcwd(), "module": str(spark_kafka_sink.__file__), "python": sys.executable}


if __name__ == "__main__":
    main()
