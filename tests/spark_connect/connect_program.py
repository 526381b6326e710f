"""Writes in every way through Spark Connect: `python -m tests.spark_connect.connect_program SERVER BOOTSTRAP FOLDER`.

A process of its own, because a process has sessions of one kind. It prints a line of JSON for each
step: its name, and what it returned or the text that a user sees of its error.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

import pyspark_kafka_sink
import spark_kafka_sink as sks

ROWS = 20


def rows(spark: SparkSession, **columns: str) -> DataFrame:
    named = {"key": "string(id)", "value": "string(id)"} | columns
    return spark.range(0, ROWS, 1, 2).selectExpr(*(f"{made} AS {name}" for name, made in named.items()))


def run_stream(spark: SparkSession, folder: Path, options: Mapping[str, str], **columns: str) -> None:
    given = folder / "rows"
    if not given.exists():
        rows(spark).write.json(str(given))
    df = spark.readStream.schema("key string, value string").json(str(given))
    df = df.selectExpr(*(f"{columns.get(name, name)} AS {name}" for name in ("key", "value")))
    writer = df.writeStream.format("kafka_sink").options(**options)
    query = writer.option("checkpointLocation", str(folder / options["topic"])).trigger(availableNow=True).start()
    query.awaitTermination()


def main(server: str, bootstrap: str, given: str) -> None:
    folder = Path(given)
    spark = SparkSession.builder.remote(server).getOrCreate()
    if not hasattr(pyspark_kafka_sink, "DefaultSource"):  # Spark 4.0
        sks.register(spark)

    def options(topic: str, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": bootstrap, "topic": topic, **{k.replace("__", "."): v for k, v in more.items()}}

    def save(df: DataFrame, given: Mapping[str, str]) -> None:
        df.write.format("kafka_sink").options(**given).mode("append").save()

    def published(given: Mapping[str, str]) -> object:
        report = sks.publish(rows(spark), options=given)
        offsets = [one.last_offset + 1 for one in report.total.partitions.values()]
        tasks = [task.report.records for task in report.tasks]
        return {"records": report.total.records, "tasks": tasks, "last offsets": sum(offsets)}

    def bar() -> object:
        with redirect_stderr(StringIO()) as shown:
            # A task writes 5 rows at once and the others within a second, in which the server tells that it runs.
            sks.publish(rows(spark), options=options("bar", max__records__per__second="5"), progress=True)
        return {"shown": shown.getvalue(), "handlers left": len(cast("Any", spark).client._progress_handlers)}

    def by_foreach_batch(given: Mapping[str, str]) -> object:
        write = sks.foreach_batch(given)
        df = spark.readStream.schema("key string, value string").json(str(folder / "rows"))
        writer = df.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / given["topic"]))
        while True:
            try:
                query = writer.trigger(availableNow=True).start()
            except Exception as error:
                # Spark gives the process of foreachBatch 10 s to start (PythonWorkerFactory.createSimpleWorker).
                if "failed to connect back" in str(error):
                    continue
                raise
            query.awaitTermination()
            return None

    def by_partition_writer(given: Mapping[str, str]) -> object:
        rows(spark).foreachPartition(sks.partition_writer(given))
        return None

    once = {"delivery__guarantee": "exactly-once"}
    steps: Mapping[str, Callable[[], object]] = {
        "save": lambda: save(rows(spark), options("save")),
        "save once": lambda: save(rows(spark), options("save-once", **once)),
        "stream": lambda: run_stream(spark, folder, options("stream")),
        "stream once": lambda: run_stream(spark, folder, options("stream-once", **once)),
        "publish": lambda: published(options("publish")),
        "publish once": lambda: published(options("publish-once", **once)),
        "bar": bar,
        "foreach_batch": lambda: by_foreach_batch(options("foreach-batch")),
        "partition_writer": lambda: by_partition_writer(options("partition-writer")),
        "once in foreach_batch": lambda: by_foreach_batch(options("refused", **once)),
        "metrics": lambda: sks.register(spark).committed,
        "check": lambda: sks.check(options("save"), rows(spark)).ok,
        "bad column": lambda: save(rows(spark, value="id"), options("bad")),
        "bad option": lambda: save(rows(spark), options("bad", kafka__ackss="all")),
        "bad row": lambda: save(rows(spark, partition="CAST(99 AS INT)"), options("bad")),
        "bad row of a stream": lambda: run_stream(spark, folder, options("bad-stream", kafka__max__request__size="1"), key="'k'"),
        "bad row of publish": lambda: sks.publish(rows(spark, partition="CAST(99 AS INT)"), options=options("bad")),
    }
    for name, step in steps.items():
        try:
            said = {"step": name, "result": step()}
        except Exception as error:
            said = {"step": name, "error": "".join(traceback.format_exception_only(error))}
        print(json.dumps(said), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
