"""The Spark side: takes rows from a DataFrame, a stream or Row iterators to the producer, and reports back to the driver."""

from __future__ import annotations

import sys

from spark_kafka_sink.installation import check_spark

# Tasks, and the processes that Spark starts for a query, have imported PySpark before. Elsewhere the public functions check it:
# `check` and the commands read a sink's options without Spark.
if sys.modules.get("pyspark") is not None:
    check_spark()
