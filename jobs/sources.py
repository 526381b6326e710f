"""[source] and [columns] of the settings as a DataFrame with the columns of Kafka records."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from jobs.outcome import SettingsError
from jobs.settings import Settings

KAFKA = "kafka"


def batch_records(spark: SparkSession, settings: Settings) -> DataFrame:
    """The source as a batch."""
    return _select(_load(spark.read, settings), settings)


def stream_records(spark: SparkSession, settings: Settings) -> DataFrame:
    """The source as a stream."""
    return _select(_load(spark.readStream, settings), settings)


def _load(reader: DataFrameReader | DataStreamReader, settings: Settings) -> DataFrame:
    source = settings.required("source", "format")
    configured: Any = reader.format(source).options(**settings.texts("source", "options."))
    schema = settings.text("source", "schema")
    if schema is not None:
        configured = configured.schema(schema)
    try:
        loaded: DataFrame = configured.load(settings.text("source", "path"))
    except Exception as error:
        # Spark finds the class by name when the plan is made; its own text names no package.
        if source == KAFKA and "Failed to find data source: kafka" in str(error):
            raise SettingsError(_no_kafka_source(settings)) from None
        raise
    return loaded


def _no_kafka_source(settings: Settings) -> str:
    return (
        f"{settings.origin}: setting format in [source] is kafka, and Spark's Kafka source is not on the class path: add"
        f" --packages org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__} to spark-submit (where this version is not"
        " published yet, the newest before it), or its jars with --jars. Only reading needs it; the sink has no jar."
    )


def _select(frame: DataFrame, settings: Settings) -> DataFrame:
    """[columns] has an SQL expression for each column of the records; without it the source has them already."""
    expressions = settings.texts("columns")
    return frame.selectExpr(*(f"{sql} as {name}" for name, sql in expressions.items())) if expressions else frame
