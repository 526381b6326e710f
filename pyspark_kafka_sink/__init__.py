"""Spark looks in packages named pyspark_* for a `DefaultSource`: this one makes `format("kafka_sink")` work unregistered.

Then nothing is counted for the driver; `spark_kafka_sink.register(spark)` overrides it with one that is counted.
"""

from __future__ import annotations

import pyspark

# Before 4.1 Spark refused to register a source over one that it found itself (SPARK-51919). Being counted is worth more than
# not having to register, so there the format is known only where it was registered.
if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 1):
    from spark_kafka_sink.spark.data_source import KafkaSinkDataSource as DefaultSource

    __all__ = ["DefaultSource"]
