"""Checks whether bytes are a batch that a log accepts, and prepares it for storage (Kafka's LogValidator)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import BatchHeader, is_valid, read_header
from spark_kafka_sink.broker.log.log_types import AppendOrigin, LogConfig, TimestampType
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.batch_header import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    SIZE_BEFORE_LENGTH,
    UNCHECKED,
)
from spark_kafka_sink.records.compression import Buffer, Codec, compress, decompress
from spark_kafka_sink.records.record_iter import RecordChunk, iter_records

RecordError = tuple[int, str]
_MAX_ERRORS = 64 * 1024  # keeps a response small compared with the request


# Kafka reads compressed records as a stream without a limit; here each handler thread may hold this much, and twice as much with
# some codecs. A topic that takes larger batches uncompressed takes them compressed as well.
MAX_DECOMPRESSED = 24 * 1024 * 1024
_LEAST_LENGTH = 14  # LegacyRecord.RECORD_OVERHEAD_V0: ByteBufferLogInputStream checks a length against it before it reads on
_MAGIC_POSITION = 16
_LENGTH_POSITION = 8


@dataclass(frozen=True, slots=True)
class ValidBatch:
    """A batch to store. `rest`: all bytes after the checksum, unchanged wherever possible."""

    header: BatchHeader
    rest: tuple[Buffer, ...]

    def at(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        return self.header._replace(base_offset=base_offset, leader_epoch=leader_epoch)


def validate(records: Buffer, config: LogConfig, origin: AppendOrigin, now_ms: int, topic_partition: str) -> ValidBatch:
    """Returns the one batch in `records`. Raises ApiException with Kafka's error code."""
    view = memoryview(records).cast("B")
    batch = only_batch(view)
    header = read_header(batch)
    _check_batch(header, batch, config, origin, topic_partition)
    if header.codec_id > max(Codec):
        # Kafka finds no CompressionType for it, and has no error code for that.
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {header.codec_id}")
    codec = Codec(header.codec_id)
    plain = _plain(codec, batch[HEADER_SIZE:], max(MAX_DECOMPRESSED, config.max_message_bytes))
    max_timestamp, in_order = check_records(plain, header, config, now_ms, topic_partition)
    stamped = _stamped(header, max_timestamp, config, now_ms)
    if not in_order:
        target = codec if config.compression_type is None else config.compression_type
        stored = _compressed(stamped, _in_order(plain, stamped), target, config)
    elif config.compression_type not in (None, codec) and not header.is_control:
        stored = _compressed(stamped, plain, Codec(config.compression_type), config)
    elif stamped == header:
        stored = ValidBatch(header, (batch[UNCHECKED.size :],))
    else:
        stored = _sealed(stamped, batch[HEADER_SIZE:])
    if stored.header.size > config.segment_bytes:
        raise ApiException(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {stored.header.size} bytes in append to partition {topic_partition}, which exceeds the "
            f"maximum configured segment size of {config.segment_bytes}",
        )
    return stored


def only_batch(view: memoryview) -> memoryview:
    """Returns the first batch and ignores trailing bytes that are not one. Raises ApiException.

    It combines ByteBufferLogInputStream.nextBatch and ProduceRequest.validateRecords.
    """
    size = _batch_size(view)
    if size is None:
        raise ApiException(ErrorCode.INVALID_RECORD, "There must be one record batch, but there is none")
    if view[_MAGIC_POSITION] != MAGIC:
        raise ApiException(ErrorCode.INVALID_RECORD, f"Only record batches with magic version {MAGIC} are supported")
    if _batch_size(view[size:]) is not None:
        raise ApiException(ErrorCode.INVALID_RECORD, "There must be exactly one record batch per partition")
    if size < HEADER_SIZE:
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"Record batch is corrupt: its size {size} is less than {HEADER_SIZE}")
    return view[:size]


def _batch_size(view: memoryview) -> int | None:
    """Returns the size of the batch that starts here; None if it is not complete."""
    if len(view) < SIZE_BEFORE_LENGTH:
        return None
    length = int.from_bytes(view[_LENGTH_POSITION:SIZE_BEFORE_LENGTH], "big", signed=True)
    if length < _LEAST_LENGTH:
        text = f"Record size {length} is less than the minimum record overhead ({_LEAST_LENGTH})"
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, text)
    if len(view) <= _MAGIC_POSITION:
        return None
    if view[_MAGIC_POSITION] > MAGIC:
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {view[_MAGIC_POSITION]}")
    size = length + SIZE_BEFORE_LENGTH
    return size if size <= len(view) else None


def _check_batch(header: BatchHeader, batch: memoryview, config: LogConfig, origin: AppendOrigin, where: str) -> None:
    """Runs the checks of UnifiedLog.analyzeAndValidateRecords and then of LogValidator.validateBatch, in their order."""
    client = origin is AppendOrigin.CLIENT
    if client and header.base_offset != 0:
        raise ApiException(
            ErrorCode.INVALID_RECORD, f"The baseOffset of the record batch in {where} should be 0, but it is {header.base_offset}"
        )
    _check_size(header.size, config, where)
    if not is_valid(header, batch):
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}) in topic partition {where}")
    if client:
        _check_client_batch(header, where)
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise ApiException(ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {header.record_count} in {where}")


def _check_size(size: int, config: LogConfig, where: str) -> None:
    if size > config.max_message_bytes:
        raise ApiException(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {size} bytes which exceeds the maximum configured value of "
            f"{config.max_message_bytes}",
        )


def _check_client_batch(header: BatchHeader, where: str) -> None:
    count, last = header.record_count, header.last_offset_delta
    if last < 0:
        raise ApiException(ErrorCode.INVALID_RECORD, f"Batch has an invalid offset range: [0, {last}] in {where}")
    if count <= 0:
        raise ApiException(ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {count} in {where}")
    if count != last + 1:
        raise ApiException(
            ErrorCode.INVALID_RECORD, f"Inconsistent batch offset range [0, {last}] and count of records {count} in {where}"
        )
    if header.is_control:
        raise ApiException(ErrorCode.INVALID_RECORD, f"Clients are not allowed to write control records in {where}")
    if header.has_producer_id and header.base_sequence < 0:
        raise ApiException(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} in {where}",
        )


def _plain(codec: Codec, payload: memoryview, limit: int) -> bytes:
    if codec is Codec.NONE:
        return bytes(payload)
    try:
        return decompress(codec, payload, limit)
    except ProtocolError as error:
        # Kafka throws KafkaException("Failed to decompress record stream"), for which it has no error code.
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to decompress record stream: {error}") from error


def _stamped(header: BatchHeader, max_timestamp: int, config: LogConfig, now_ms: int) -> BatchHeader:
    """Returns the header with the broker's time if the topic wants that, or else with the records' largest timestamp."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header._replace(max_timestamp=now_ms, attributes=header.attributes | LOG_APPEND_TIME)
    return header._replace(max_timestamp=max_timestamp, attributes=header.attributes & ~LOG_APPEND_TIME)


def _in_order(plain: bytes, header: BatchHeader) -> bytes:
    """Returns the records with the offset deltas 0, 1, 2 ..., as Kafka's buildRecordsAndAssignOffsets does.

    No known client writes others, so it may be slow.
    """
    # It imports pyarrow, which a broker does not need otherwise: 50 ms of its start and 30 MB.
    from spark_kafka_sink.records.encoder import encode_again, written_records

    records = written_records(plain, header.record_count)
    rows = np.arange(header.record_count)
    return bytes(encode_again(records, rows, rows.astype(np.int32), records.timestamp_deltas).data)


def _compressed(header: BatchHeader, plain: bytes, codec: Codec, config: LogConfig) -> ValidBatch:
    payload = compress(codec, config.level_of(codec), [plain])
    attributes = header.attributes & ~CODEC_MASK | codec
    sized = header._replace(attributes=attributes, size=HEADER_SIZE + len(payload))
    _check_size(sized.size, config, "the topic once compressed")
    return _sealed(sized, payload)


def _sealed(header: BatchHeader, payload: Buffer) -> ValidBatch:
    checked = header.checked_bytes()
    return ValidBatch(header._replace(crc=crc32c(payload, crc32c(checked))), (checked, payload))


# Each record


def check_records(plain: bytes, header: BatchHeader, config: LogConfig, now_ms: int, where: str) -> tuple[int, bool]:
    """Checks every record's structure, timestamp and key, as columns of numbers.

    It walks all records, as Kafka does: 0.09 us per record of 100 bytes, 0.2 us if their sizes differ; the decompression (lz4)
    takes another 0.06 us. Without it, consumers would find a broken batch again and again.

    Returns:
        The largest timestamp, and whether the offset deltas are 0, 1, 2 ...

    Raises:
        ApiException: a record is invalid. It lists the invalid records if they can be identified.
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
            if len(errors) < _MAX_ERRORS:
                errors += _errors(records.first, null_key, bad, timestamps, config, now_ms, where)
    except ProtocolError as error:
        raise ApiException(ErrorCode.INVALID_RECORD, f"{error} in topic partition {where}") from error
    if errors:
        # LogValidator.processRecordErrors
        errors = errors[:_MAX_ERRORS]
        code, text = ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp"
        if not bad_time:
            code = ErrorCode.INVALID_RECORD
            text = (
                f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the first "
                f"three errors at most: {errors[:3]}"
            )
        raise ApiException(code, text, record_errors=tuple(errors))
    return max_timestamp, in_order


def _timestamps(records: RecordChunk, header: BatchHeader) -> NDArray[np.int64]:
    """Returns the sum over 64 bits, which wraps around as in Java."""
    if header.is_log_append_time:
        return np.full(len(records.timestamp_deltas), header.max_timestamp, np.int64)
    return records.timestamp_deltas + np.int64(header.base_timestamp)


def _bad_timestamps(timestamps: NDArray[np.int64], header: BatchHeader, config: LogConfig, now_ms: int) -> NDArray[np.bool_]:
    """Returns the records with timestamps outside the topic's range, or with a type that only a broker may set.

    It implements LogValidator.validateTimestamp.
    """
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        earliest, latest = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
        bad: NDArray[np.bool_] = (timestamps < earliest) | (timestamps > latest)
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
    for row in np.flatnonzero(null_key | bad_timestamp)[:_MAX_ERRORS].tolist():
        text = f"Compacted topic cannot accept message without key in topic partition {where}"
        if bad_timestamp[row]:
            text = _timestamp_error(int(timestamps[row]), first + row, config, now_ms)
        errors.append((first + row, text))
    return errors


def _timestamp_error(timestamp: int, offset: int, config: LogConfig, now_ms: int) -> str:
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME or timestamp == NO_TIMESTAMP:
        return "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
    earliest, latest = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )
