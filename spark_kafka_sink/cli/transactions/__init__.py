"""`spark-kafka-sink transactions`: lists and ends transactions that are open, prepared or partly committed."""

from __future__ import annotations

from spark_kafka_sink.installation import check_libraries

# Ahead of the modules that import them, so that a library that is broken or too old is one line.
check_libraries()
