"""The bytes of records: encodes columns to magic-2 record batches and decodes them."""

from __future__ import annotations

from spark_kafka_sink.installation import RECORD_LIBRARIES, check_libraries

# Before a module in here imports them.
check_libraries(*RECORD_LIBRARIES)
