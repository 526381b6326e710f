"""Spark looks in packages named pyspark_* for a `DefaultSource`: this one makes `format("kafka_sink")` work unregistered.

Then nothing is counted for the driver; `spark_kafka_sink.register(spark)` overrides it with one that is.
"""

from __future__ import annotations

from spark_kafka_sink.spark.data_source import KafkaSinkDataSource as DefaultSource

__all__ = ["DefaultSource"]
