"""A driver of queries, to be killed: it runs one after the other as its stdin tells, and says on stdout how each ended.

A line of stdin is a query in JSON; see `Query`. A line of stdout is an event in JSON: ready, done, failed.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any


@dataclass(frozen=True)
class Query:
    """The rows below `source`, `files` files in a micro-batch, through the sink with `options`, from `checkpoint` on.

    tasks: how many write a micro-batch; 0: one for each file. shuffled: they are the second stage, and may have to run the first
    one again. keys: see NumberedRows. job: all rows at once, by a batch job, which has no checkpoint. bad_every: multiples of
    this number are bad rows, which the task refuses or the producer, by turns; 0: none is.
    """

    source: Path
    checkpoint: Path
    files: int
    keys: int
    options: dict[str, str] = field(default_factory=dict)
    tasks: int = 0
    shuffled: bool = False
    job: bool = False
    bad_every: int = 0

    @property
    def topic(self) -> str:
        return self.options["topic"]

    @property
    def id(self) -> str:
        """Spark's, which it keeps over all runs from the checkpoint."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    def as_json(self) -> str:
        return json.dumps(asdict(self), default=str)


def session(settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("exactly once")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def run(spark: Any, query: Query, out: IO[str]) -> None:
    """To its end, or its failure."""
    try:
        write(spark, query)
    except Exception as error:
        say(out, event="failed", text=str(error))
    else:
        say(out, event="done")


def write(spark: Any, query: Query) -> None:
    if query.job:
        rows(spark.read, query).write.format("kafka_sink").options(**query.options).mode("append").save()
        return
    writer = rows(spark.readStream, query).writeStream.format("kafka_sink").options(**query.options)
    writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start().awaitTermination()


def rows(reader: Any, query: Query) -> Any:
    lines = reader.format("text").option("maxFilesPerTrigger", str(query.files)).load(str(query.source))
    columns = [f"cast(cast(value as bigint) % {query.keys} as string) as key", "value"]
    if query.bad_every:
        bad = f"if(value % {2 * query.bad_every} = 0, -5, 9999)"
        columns.append(f"cast(if(value % {query.bad_every} = 0, {bad}, null) as int) as partition")
    numbers = lines.selectExpr(*columns)
    if query.shuffled:
        return numbers.repartition(query.tasks or query.files, "key")
    return numbers.coalesce(query.tasks) if query.tasks else numbers


def say(out: IO[str], **event: object) -> None:
    out.write(json.dumps(event) + "\n")
    out.flush()


def events() -> IO[str]:
    """What stdout was. From here on stdout is stderr, also of Java, which warns there: what it prints is no event."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def main() -> None:
    out = events()
    import spark_kafka_sink as sks

    spark = session(json.loads(sys.argv[1]))
    sks.register(spark)
    say(out, event="ready", jvm=spark.sparkContext._gateway.proc.pid, application=spark.sparkContext.applicationId)
    for line in sys.stdin:
        run(spark, Query(**json.loads(line)), out)


if __name__ == "__main__":
    main()
