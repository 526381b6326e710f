"""Compaction keeps the last record of each key (Kafka's LogCleaner). It runs when it is called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from spark_kafka_sink.broker.log.batch import BatchHeader
from spark_kafka_sink.broker.log.local_log import CleanableLog
from spark_kafka_sink.broker.log.log_files import CLEANED_SUFFIX, storage_errors
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_types import LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.records.batch_header import CODEC_MASK, HEADER_SIZE
from spark_kafka_sink.records.compression import Buffer, Codec, compress, decompress
from spark_kafka_sink.records.record_reader import Record, read_record

_VALIDATED: Final = 2**31 - 1
"""No limit for decompressed records: the log took them within its own."""


def maybe_compact(log: UnifiedLog, now_ms: int) -> int:
    """Compacts the log if the dirty share of what can be cleaned reaches the topic's `min.cleanable.dirty.ratio`."""
    if not log.config.compact:
        return 0
    sizes = [(segment.base_offset >= log.first_dirty_offset, segment.size) for segment in log.cleanable(now_ms).segments]
    dirty = sum(size for is_new, size in sizes if is_new)
    if dirty == 0 or dirty < log.config.min_cleanable_dirty_ratio * sum(size for _, size in sizes):
        return 0
    return compact(log, now_ms)


def compact(log: UnifiedLog, now_ms: int) -> int:
    """Compacts the log's closed segments if the topic is compacted, and returns the number of bytes freed.

    Offsets do not change. It removes records whose key recurs in a closed segment, and aborted records. It also removes
    tombstones, and markers without remaining records, once `delete.retention.ms` has passed since their own time. A producer's
    last batch stays for its sequence numbers, even without records. The log is locked only while segments are exchanged. Only one
    thread may call it at a time.

    Raises:
        ApiException: KAFKA_STORAGE_ERROR; the log is unchanged.
    """
    if not log.config.compact:
        return 0
    freed = 0
    with storage_errors(log.name):
        cleanable = log.cleanable(now_ms)
        cleaner = _Cleaner(cleanable, log.config, now_ms)
        cleaner.read_keys()
        for group in _groups(cleanable.segments, log.config):
            before = sum(segment.size for segment in group)
            cleaned = cleaner.clean(group)
            if cleaned.size == before or not log.replace_segments(group, cleaned):
                cleaned.delete()
            else:
                freed += before - cleaned.size
        log.first_dirty_offset = cleanable.end_offset
    return freed


def _groups(segments: list[LogSegment], config: LogConfig) -> Iterator[list[LogSegment]]:
    """Groups small neighbouring segments, which become one."""
    group: list[LogSegment] = []
    for segment in segments:
        total = sum(one.size for one in group) + segment.size
        if group and (total > config.segment_bytes or segment.next_offset() - group[0].base_offset >= 2**31):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


@dataclass(slots=True)
class _Cleaner:
    _log: CleanableLog
    _config: LogConfig
    _now_ms: int
    _last_offsets: dict[bytes, int] = field(default_factory=dict)
    _open_txns: set[int] = field(default_factory=set)  # producers with a batch that stays, so their marker must stay too

    def read_keys(self) -> None:
        """Finds the last offset of each key."""
        for segment in self._log.segments:
            for position, header in segment.records.headers():
                if not header.is_control and not self._is_aborted(header):
                    for record, _ in _records(segment, position, header):
                        if record.key is not None:
                            self._last_offsets[record.key] = record.offset

    def clean(self, group: list[LogSegment]) -> LogSegment:
        """Returns a segment with the records that stay."""
        cleaned = LogSegment.create(self._log.folder, group[0].base_offset, self._config, group[0].created_ms, CLEANED_SUFFIX)
        for segment in group:
            for position, header in segment.records.headers():
                if header.is_control:
                    self._clean_marker(cleaned, segment, position, header)
                else:
                    self._clean_batch(cleaned, segment, position, header)
        return cleaned

    def _clean_batch(self, cleaned: LogSegment, segment: LogSegment, position: int, header: BatchHeader) -> None:
        found = list(_records(segment, position, header))
        aborted = self._is_aborted(header)
        kept = [(record, data) for record, data in found if not aborted and self._stays(record)]
        if not kept and self._log.last_batches.get(header.producer_id) != header.last_offset:
            return
        if header.is_transactional:
            self._open_txns.add(header.producer_id)
        if len(kept) == len(found):
            cleaned.append(header, segment.records.read(position, header.size))
            return
        batch, payload = _with_records(header, kept, self._config)
        cleaned.append(batch, [batch.unchecked_bytes(), batch.checked_bytes(), payload])

    def _clean_marker(self, cleaned: LogSegment, segment: LogSegment, position: int, header: BatchHeader) -> None:
        is_old = self._now_ms - header.max_timestamp > self._config.delete_retention_ms
        if is_old and header.producer_id not in self._open_txns:
            return
        self._open_txns.discard(header.producer_id)
        cleaned.append(header, segment.records.read(position, header.size))
        for aborted in self._log.aborted:
            if aborted.last_offset == header.base_offset:
                cleaned.txn_index.aborted.append(aborted)

    def _stays(self, record: Record) -> bool:
        if record.key is None or record.offset < self._last_offsets.get(record.key, record.offset):
            return False
        return record.value is not None or self._now_ms - record.timestamp <= self._config.delete_retention_ms

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            aborted.producer_id == header.producer_id and aborted.first_offset <= header.base_offset <= aborted.last_offset
            for aborted in self._log.aborted
        )


def _records(segment: LogSegment, position: int, header: BatchHeader) -> Iterator[tuple[Record, bytes]]:
    data = b"".join(segment.records.read(position, header.size))
    plain = decompress(Codec(header.codec_id), memoryview(data)[HEADER_SIZE:], _VALIDATED)
    stamp = header.max_timestamp if header.is_log_append_time else None
    at = 0
    for _ in range(header.record_count):
        record, end = read_record(plain, at, header.base_offset, header.base_timestamp, stamp)
        yield record, plain[at:end]
        at = end


def _with_records(header: BatchHeader, kept: list[tuple[Record, bytes]], config: LogConfig) -> tuple[BatchHeader, Buffer]:
    """Returns the batch with only these records. Its offsets, and so their deltas, do not change."""
    plain = b"".join(data for _, data in kept)
    codec = Codec(header.codec_id if kept else Codec.NONE)
    payload = compress(codec, config.level_of(codec), [plain])
    latest = max((record.timestamp for record, _ in kept), default=header.max_timestamp)
    smaller = header._replace(
        size=HEADER_SIZE + len(payload),
        attributes=header.attributes & ~CODEC_MASK | codec,
        max_timestamp=latest,
        record_count=len(kept),
    )
    return smaller._replace(crc=crc32c(payload, crc32c(smaller.checked_bytes()))), payload
