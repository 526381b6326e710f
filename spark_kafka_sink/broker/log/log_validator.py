"""Whether bytes from anywhere are a batch that this log takes, and what it becomes: Kafka's LogValidator."""

from __future__ import annotations

from dataclasses import dataclass

from crc32c import crc32c

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.batch import CODEC_MASK, LOG_APPEND_TIME, BatchHeader, is_valid, read_header
from spark_kafka_sink.broker.log.log_config import LogConfig, TimestampType
from spark_kafka_sink.broker.log.log_types import AppendOrigin
from spark_kafka_sink.broker.log.record_checks import check_records
from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.batch_header import HEADER_SIZE, MAGIC, SIZE_BEFORE_LENGTH, UNCHECKED
from spark_kafka_sink.records.compression import Buffer, Codec, compress, decompress

# lz4 makes at most 255 bytes of one, so this is what a batch of half a megabyte can be at the very most. Kafka reads such data
# as a stream and sets no bound; here each handler thread may hold this much.
MAX_DECOMPRESSED = 128 * 1024 * 1024
_LEAST_LENGTH = 14  # LegacyRecord.RECORD_OVERHEAD_V0: what ByteBufferLogInputStream asks of a length before it looks further
_MAGIC_POSITION = 16
_LENGTH_POSITION = 8


@dataclass(frozen=True, slots=True)
class ValidBatch:
    """A batch to be stored. `rest`: all bytes behind the checksum, as they came wherever nothing had to change."""

    header: BatchHeader
    rest: tuple[Buffer, ...]

    def at(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        return self.header._replace(base_offset=base_offset, leader_epoch=leader_epoch)


def validate(records: Buffer, config: LogConfig, origin: AppendOrigin, now_ms: int, topic_partition: str) -> ValidBatch:
    """The one batch in `records`. Raises ApiException with the code that Kafka answers."""
    view = memoryview(records).cast("B")
    batch = _only_batch(view)
    header = read_header(batch)
    _check_batch(header, batch, config, origin, topic_partition)
    if header.codec_id > max(Codec):
        # Kafka finds no CompressionType for it, and has no code for that.
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {header.codec_id}")
    codec = Codec(header.codec_id)
    payload = batch[HEADER_SIZE:]
    plain = _plain(codec, payload)
    max_timestamp = check_records(plain, header, config, now_ms, topic_partition)
    return _stored(header, batch, plain, max_timestamp, config, now_ms)


def _only_batch(view: memoryview) -> memoryview:
    """ByteBufferLogInputStream.nextBatch and ProduceRequest.validateRecords: bytes behind it that are no batch are left out."""
    size = _batch_size(view)
    if size is None:
        raise ApiException(ErrorCode.INVALID_RECORD, "There must be one record batch, and there is none")
    if view[_MAGIC_POSITION] != MAGIC:
        raise ApiException(ErrorCode.INVALID_RECORD, f"Only record batches with magic version {MAGIC} are taken")
    if _batch_size(view[size:]) is not None:
        raise ApiException(ErrorCode.INVALID_RECORD, "There must be exactly one record batch per partition")
    if size < HEADER_SIZE:
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"Record batch is corrupt: its size {size} is less than {HEADER_SIZE}")
    return view[:size]


def _batch_size(view: memoryview) -> int | None:
    """Of the batch that begins here, None when there is no whole one."""
    if len(view) < SIZE_BEFORE_LENGTH:
        return None
    length = int.from_bytes(view[_LENGTH_POSITION:SIZE_BEFORE_LENGTH], "big", signed=True)
    if length < _LEAST_LENGTH:
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"Record size {length} is less than the minimum ({_LEAST_LENGTH})")
    if len(view) <= _MAGIC_POSITION:
        return None
    if view[_MAGIC_POSITION] > MAGIC:
        raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {view[_MAGIC_POSITION]}")
    size = length + SIZE_BEFORE_LENGTH
    return size if size <= len(view) else None


def _check_batch(header: BatchHeader, batch: memoryview, config: LogConfig, origin: AppendOrigin, where: str) -> None:
    """UnifiedLog.analyzeAndValidateRecords, then LogValidator.validateBatch, in their order."""
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


def _plain(codec: Codec, payload: memoryview) -> Buffer:
    if codec is Codec.NONE:
        return payload
    try:
        return decompress(codec, payload, MAX_DECOMPRESSED)
    except ProtocolError as error:
        # Kafka's KafkaException("Failed to decompress record stream"), for which it has no code.
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to decompress record stream: {error}") from error


def _stored(
    header: BatchHeader, batch: memoryview, plain: Buffer, max_timestamp: int, config: LogConfig, now_ms: int
) -> ValidBatch:
    """With the topic's codec and the broker's time, where it wants these."""
    codec = config.compression_type
    stamped = header._replace(max_timestamp=max_timestamp, attributes=header.attributes & ~LOG_APPEND_TIME)
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        stamped = stamped._replace(max_timestamp=now_ms, attributes=stamped.attributes | LOG_APPEND_TIME)
    if codec is None or codec == header.codec_id or header.is_control:
        if stamped == header:
            return ValidBatch(header, (batch[UNCHECKED.size :],))
        return _sealed(stamped, batch[HEADER_SIZE:])
    payload = compress(codec, _level(codec, config), [plain])
    sized = stamped._replace(attributes=stamped.attributes & ~CODEC_MASK | codec, size=HEADER_SIZE + len(payload))
    _check_size(sized.size, config, "the topic once compressed")
    return _sealed(sized, payload)


_DEFAULT_LEVELS = {Codec.NONE: 0, Codec.GZIP: -1, Codec.SNAPPY: 0, Codec.LZ4: 9, Codec.ZSTD: 3}


def _level(codec: Codec, config: LogConfig) -> int:
    return _DEFAULT_LEVELS[codec] if config.compression_level is None else config.compression_level


def _sealed(header: BatchHeader, payload: Buffer) -> ValidBatch:
    checked = header.checked_bytes()
    return ValidBatch(header._replace(crc=crc32c(payload, crc32c(checked))), (checked, payload))
