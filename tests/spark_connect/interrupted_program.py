"""Runs endless writes, which a test interrupts: `python -m tests.spark_connect.interrupted_program SERVER BOOTSTRAP STEP...`.

A step is "way guarantee name", and the name is its topic. Each step prints a line of JSON when it has ended: the name of its
exception, its text and its notes. For each line on the standard input, another thread interrupts all operations of the session.
"""

from __future__ import annotations

import json
import signal
import sys
import threading

from pyspark.sql import SparkSession

import spark_kafka_sink as sks


def interrupt_all(spark: SparkSession) -> None:
    for _ in sys.stdin:
        spark.interruptAll()


def main(server: str, bootstrap: str, *steps: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spark = SparkSession.builder.remote(server).getOrCreate()
    sks.register(spark)
    threading.Thread(target=interrupt_all, args=(spark,), daemon=True).start()
    # Both slots of the server are taken for an hour, so a step that follows begins only if the job before it was cancelled.
    df = spark.range(0, 1_000_000, 1, 2).selectExpr("string(id) AS value")
    for way, guarantee, topic in map(str.split, steps):
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery.guarantee": guarantee}
        options["max.records.per.second"] = "100"
        try:
            if way == "publish":
                sks.publish(df, options=options)
            else:
                df.write.format("kafka_sink").options(**options).mode("append").save()
        except BaseException as error:
            said = {"error": type(error).__name__, "text": str(error), "notes": getattr(error, "__notes__", [])}
            print(json.dumps(said), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
