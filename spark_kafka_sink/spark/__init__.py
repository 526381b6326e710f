"""The Spark side: takes rows from a DataFrame, a stream or Row iterators to the producer, and reports back to the driver."""

from __future__ import annotations

from spark_kafka_sink.installation import check_spark

# Before a module in here imports PySpark: in tasks and in the processes that Spark starts for a query, too.
check_spark()
