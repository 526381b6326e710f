"""Whether a topic takes the records of a batch: the part of Kafka's LogValidator that looks at each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.log_config import LogConfig, TimestampType
from spark_kafka_sink.broker.log.log_types import NO_TIMESTAMP
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.record_iter import RecordChunk, iter_records

RecordError = tuple[int, str]
_MOST_ERRORS = 64 * 1024  # so that an answer stays small beside the request


@dataclass(frozen=True, slots=True)
class CheckedRecords:
    """`in_order`: their offset deltas are 0, 1, 2 ..."""

    max_timestamp: int
    in_order: bool


def check_records(plain: bytes, header: BatchHeader, config: LogConfig, now_ms: int, where: str) -> CheckedRecords:
    """Every record's structure, timestamp and key, as columns of numbers. Raises ApiException, with the records that are to
    blame where some are.

    All of them are walked, as Kafka does: 0.09 us a record of 100 bytes, 0.2 us where their sizes differ, beside 0.06 us for
    the decompression (lz4). Without it a broken batch would be found by the consumers, again and again.
    """
    errors: list[RecordError] = []
    max_timestamp, in_order, bad_time = NO_TIMESTAMP, True, False
    try:
        for records in iter_records(plain, header.record_count):
            timestamps = _timestamps(records, header)
            max_timestamp = max(max_timestamp, int(timestamps.max(initial=NO_TIMESTAMP)))
            due = np.arange(records.first, records.first + len(timestamps))
            in_order = in_order and bool((records.offset_deltas == due).all())
            null_key = records.key_lengths < 0 if config.compact else np.zeros(len(timestamps), np.bool_)
            bad = _bad_timestamps(timestamps, header, config, now_ms) & ~null_key
            bad_time = bad_time or bool(bad.any())
            if len(errors) < _MOST_ERRORS:
                errors += _errors(records.first, null_key, bad, timestamps, config, now_ms, where)
    except ProtocolError as error:
        raise ApiException(ErrorCode.INVALID_RECORD, f"{error} in topic partition {where}") from error
    if errors:
        raise _rejected(errors[:_MOST_ERRORS], bad_time)
    return CheckedRecords(max_timestamp, in_order)


def _timestamps(records: RecordChunk, header: BatchHeader) -> NDArray[np.int64]:
    """A sum over 64 bits wraps around, as Java's does."""
    if header.is_log_append_time:
        return np.full(len(records.timestamp_deltas), header.max_timestamp, np.int64)
    return records.timestamp_deltas + np.int64(header.base_timestamp)


def _bad_timestamps(timestamps: NDArray[np.int64], header: BatchHeader, config: LogConfig, now_ms: int) -> NDArray[np.bool_]:
    """LogValidator.validateTimestamp: out of the topic's range, or stamped by a producer as only a broker may."""
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        least, most = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
        bad: NDArray[np.bool_] = (timestamps < least) | (timestamps > most)
        return np.where(timestamps == NO_TIMESTAMP, header.is_log_append_time, bad)
    return np.full(len(timestamps), header.is_log_append_time)


def _errors(
    first: int,
    null_key: NDArray[np.bool_],
    bad_timestamp: NDArray[np.bool_],
    timestamps: NDArray[np.int64],
    config: LogConfig,
    now_ms: int,
    where: str,
) -> list[RecordError]:
    errors = []
    for row in np.flatnonzero(null_key | bad_timestamp)[:_MOST_ERRORS].tolist():
        text = f"Compacted topic cannot accept message without key in topic partition {where}"
        if bad_timestamp[row]:
            text = _timestamp_error(int(timestamps[row]), first + row, config, now_ms)
        errors.append((first + row, text))
    return errors


def _timestamp_error(timestamp: int, offset: int, config: LogConfig, now_ms: int) -> str:
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME or timestamp == NO_TIMESTAMP:
        return "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
    least, most = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. The timestamp should be within [{least}, {most}]"
    )


def _rejected(errors: list[RecordError], bad_time: bool) -> ApiException:
    """LogValidator.processRecordErrors."""
    if bad_time:
        code, text = ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp"
    else:
        code = ErrorCode.INVALID_RECORD
        text = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the first "
            f"three errors at most: {errors[:3]}"
        )
    return ApiException(code, text, record_errors=tuple(errors))
