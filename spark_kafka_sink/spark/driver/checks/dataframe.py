"""Checks in Spark: whether the DataFrame's columns fit, and which Python the workers run."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pyspark.sql import DataFrame

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.spark.driver.checks.context import CheckContext
from spark_kafka_sink.spark.driver.checks.report import CheckLine, failed, not_checked, ok
from spark_kafka_sink.spark.python_workers import is_local, other_python
from spark_kafka_sink.spark.schema import check_arrow, schema_of


def check_columns(df: DataFrame, context: CheckContext) -> Iterator[CheckLine]:
    """Checks whether the columns are those of a Kafka record. Later steps get them if they are."""
    schema = schema_of(df, context.options)
    context.schema, context.dataframe = schema, df.schema
    places = sorted(schema.places())
    used = [f"{field.name} {field.dataType.simpleString()}" for field in (df.schema.fields[place] for place in places)]
    ignored = [name for place, name in enumerate(df.columns) if place not in places]
    hints = [f"not written: {', '.join(ignored)}"] if ignored else []
    try:
        check_arrow(df.schema)
    except KafkaSinkError as error:
        hints.append(f"only publish() and foreach_batch() can write it: {error.message}")
    yield ok("columns", ", ".join(used), "; ".join(hints))


def check_python(df: DataFrame) -> Iterator[CheckLine]:
    """Checks whether Spark's workers run this program's Python."""
    context = getattr(df.sparkSession, "_sc", None)
    python = getattr(context, "pythonExec", None)
    if python is None:
        yield not_checked("Python", "unknown: Spark Connect does not say which Python its workers run")
        return
    problem = other_python(python, sys.executable)
    if problem is not None:
        yield failed("Python", problem)
    elif not is_local(context):
        yield not_checked("Python", f"{python} fits on this machine; the executors' own {python} is not known here")
    else:
        yield ok("Python", f"workers run {python}")
