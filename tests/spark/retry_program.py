"""Writes rows in tasks of which one raises in its first attempt: `python -m tests.spark.retry_program FOLDER OPTIONS...`.

A process of its own, because each task of the other tests' session has one attempt."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_kafka_sink as sks

ROWS = 400
TRIES = 3


def main(folder: str, *given: str) -> None:
    mark = Path(folder) / "raised"

    def raises_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 3 and b"0" in batch.column("key")[0].as_py() and not mark.exists():
                mark.touch()
                raise RuntimeError("raised in the middle")
            yield batch

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    builder = SparkSession.builder.master(f"local[2,{TRIES}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    sks.register(session)
    # The key is the number of the task.
    df = session.range(0, ROWS, 1, 2).selectExpr("binary(string(id div 200)) AS key", "binary(string(id)) AS value")
    df = df.mapInArrow(raises_once, df.schema)
    for options in map(json.loads, given):
        mark.unlink(missing_ok=True)
        df.write.format("kafka_sink").options(**options).mode("append").save()
        print("raised" if mark.exists() else "did not raise", flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
