"""A program that writes with secrets in every option that can hold one, and keeps all that Spark shows of it.

`python secrets_program.py BOOTSTRAP REGISTRY FOLDER` runs batches and streams that succeed and that fail, on a Spark whose
redaction matches nothing. FOLDER then has the event log, the pages and answers of Spark's user interface, the checkpoints, plans
and exceptions.
"""

from __future__ import annotations

import json
import sys
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.options.sink_options import sink_options
from tests.planted_secrets import (
    FAILING,
    MISSPELLED,
    PLANTED,
    SECRET,
    USER_AND_PASSWORD,
    VARIABLE,
    VARIABLE_OF_LOGIN,
    WRONG_PASSWORD,
    registry_failing,
    registry_planted,
)

# PySpark filters what goes to the console.
LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex
"""


def session(folder: Path) -> SparkSession:
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J.format(file=folder / "jvm.log"), encoding="utf-8")
    return (
        SparkSession.builder.master("local[2]")
        .appName("secrets")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.redaction.regex", "(?!)")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", str(folder / "events"))
        .config("spark.sql.ui.explainMode", "extended")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={log4j.as_uri()}")
        .getOrCreate()
    )


class Program:
    """Runs writes and records what is seen of them."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark = spark
        self.rows = spark.range(0, 20, 1, 2).selectExpr("string(id) AS key", "string(id) AS value")
        self.servers = {"kafka.bootstrap.servers": servers, "topic": "events"}
        self._folder = folder
        self._outcomes: dict[str, str] = {}

    def keep(self, name: str, text: object) -> None:
        (self._folder / f"{name}.seen").write_text(f"{text}\n{text!r}", encoding="utf-8")

    @contextmanager
    def recorded(self, name: str) -> Iterator[None]:
        try:
            yield
            self._outcomes[name] = "ok"
        except Exception as error:
            self._outcomes[name] = type(error).__name__
            self.keep(f"{name}-error", "".join(traceback.format_exception(error)))
            self.keep(f"{name}-error-parts", [str(error), repr(error), getattr(error, "facts", None)])

    def batch(self, name: str, options: Mapping[str, str]) -> None:
        with self.recorded(name):
            self.rows.write.format("kafka_sink").mode("append").options(**{**self.servers, **options}).save()

    def stream(self, name: str, write: Callable[[Any], Any]) -> None:
        folder = self._folder / f"stream-{name}"
        with self.recorded(name):
            self.rows.write.parquet(str(folder / "input"))
            rows = self.spark.readStream.schema(self.rows.schema).parquet(str(folder / "input"))
            writer = write(rows.writeStream).option("checkpointLocation", str(folder / "checkpoint")).queryName(name)
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            finally:
                self.keep(f"{name}-explained", query._jsq.explainInternal(True))  # what explain(extended=True) prints
                self.keep(f"{name}-progress", [query.lastProgress, query.status, query.exception()])
                query.stop()

    def finish(self) -> None:
        (self._folder / "outcomes.json").write_text(json.dumps(self._outcomes))
        address = self.spark.sparkContext.uiWebUrl
        assert address is not None
        application = f"{address}/api/v1/applications/{self.spark.sparkContext.applicationId}"
        executions = json.loads(_got(f"{application}/sql?details=true&planDescription=true&length=1000"))
        queries = _got(f"{address}/StreamingQuery/")
        pages = {
            "sql": json.dumps(executions),
            "streaming": queries,
            **{each: _got(f"{application}/{each}") for each in ("environment", "jobs", "stages", "executors")},
            **{f"page-{each}": _got(f"{address}/{each}/") for each in ("SQL", "environment", "jobs", "stages", "executors")},
            **{f"execution-{each['id']}": _got(f"{address}/SQL/execution/?id={each['id']}") for each in executions},
        }
        for name, text in pages.items():
            (self._folder / f"ui-{name}.seen").write_text(text, encoding="utf-8")


def _got(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def main(servers: str, registry: str, folder: Path) -> None:
    (folder / "events").mkdir()
    spark = session(folder)
    metrics = sks.register(spark)
    program = Program(spark, servers, folder)
    write_all(program)
    write_with_schemas(program, registry)
    program.keep("metrics", [metrics, metrics.live, metrics.committed])
    program.finish()
    spark.stop()


def kafka(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options as the sink takes them."""
    return {f"kafka.{name}": value for name, value in options.items()}


def write_all(program: Program) -> None:
    planted, password = kafka(PLANTED), kafka(USER_AND_PASSWORD)
    program.batch("batch", planted)
    program.batch("batch-password", password)
    program.batch("batch-reference", {**password, "kafka.sasl.password": f"${{env:{VARIABLE}}}"})
    program.stream("stream", sink({**program.servers, **planted}))
    program.stream("foreach-batch", lambda writer: writer.foreachBatch(sks.foreach_batch({**program.servers, **planted})))
    with program.recorded("publish"):
        program.keep("report", sks.publish(program.rows, options={**program.servers, **planted}, progress=False))
    with program.recorded("partition-writer"):
        program.rows.foreachPartition(sks.partition_writer({**program.servers, **planted}))
    sks.register(program.spark, options={**program.servers, **planted})
    with program.recorded("session-options"):
        program.rows.write.format("kafka_sink").mode("append").save()
    sks.register(program.spark)
    for name, options in FAILING.items():
        program.batch(f"failing-{name}", kafka(options))
    program.batch("failing-prefix", {**planted, "sasl.password": SECRET, "ssl.key": SECRET})
    for name in (MISSPELLED, WRONG_PASSWORD):
        program.stream(f"failing-stream-{name}", sink({**program.servers, **kafka(FAILING[name])}))
    with program.recorded("failing-publish"):
        sks.publish(program.rows, options={**program.servers, **kafka(FAILING[WRONG_PASSWORD])}, progress=False)
    program.keep("options", sink_options({**program.servers, **planted}))


def sink(options: Mapping[str, str]) -> Callable[[Any], Any]:
    """Returns what makes a stream's writer one of the sink."""
    return lambda writer: writer.format("kafka_sink").options(**options)


def write_with_schemas(program: Program, url: str) -> None:
    planted = {**program.servers, **kafka(USER_AND_PASSWORD), **registry_planted(url)}
    program.batch("registry-batch", planted)
    program.batch("registry-reference", {**planted, "schema.registry.basic.auth.user.info": f"${{env:{VARIABLE_OF_LOGIN}}}"})
    program.stream("registry-stream", sink(planted))
    program.stream("registry-foreach-batch", lambda writer: writer.foreachBatch(sks.foreach_batch(planted)))
    with program.recorded("registry-publish"):
        program.keep("registry-report", sks.publish(program.rows, options=planted, progress=False))
    program.keep("registry-check", sks.check(planted, program.rows))
    program.keep("registry-options", sink_options(planted))
    sks.register(program.spark, options=planted)
    with program.recorded("registry-session-options"):
        program.rows.write.format("kafka_sink").mode("append").save()
    sks.register(program.spark)
    for name, options in registry_failing(url).items():
        settings = {**program.servers, **kafka(USER_AND_PASSWORD), **options}
        program.batch(f"failing-registry-{name}", settings)
        if name in ("password", "misspelled"):
            program.stream(f"failing-registry-stream-{name}", sink(settings))
        program.keep(f"registry-check-{name}", sks.check(settings, program.rows))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
