"""Bytes of records: columns in, magic-2 record batches out, and back."""

from __future__ import annotations

from spark_kafka_sink.installation import RECORD_LIBRARIES, check_libraries

# Before a module in here imports them.
check_libraries(*RECORD_LIBRARIES)
