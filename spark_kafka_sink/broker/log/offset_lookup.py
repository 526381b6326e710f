"""Which offset a time stands for: what ListOffsets asks of a log."""

from __future__ import annotations

from enum import IntEnum

from spark_kafka_sink.broker.log.leader_epoch_cache import LeaderEpochCache
from spark_kafka_sink.broker.log.local_log import LocalLog
from spark_kafka_sink.broker.log.log_segment import BatchPlace, LogSegment
from spark_kafka_sink.broker.log.log_types import NO_TIMESTAMP, TimestampAndOffset
from spark_kafka_sink.broker.log.segment_records import records_at


class ListOffsetsTimestamp(IntEnum):
    """Numbers that stand for no time (ListOffsetsRequest)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


def find_offset(local: LocalLog, epochs: LeaderEpochCache, log_start_offset: int, timestamp: int) -> TimestampAndOffset | None:
    """The first record that is not earlier than `timestamp`, or what ListOffsetsTimestamp stands for
    (UnifiedLog.fetchOffsetByTimestamp)."""
    if timestamp in (ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL):
        earliest = epochs.earliest_entry
        epoch = earliest.epoch if earliest is not None and earliest.start_offset <= log_start_offset else -1
        return TimestampAndOffset(NO_TIMESTAMP, log_start_offset, epoch)
    if timestamp == ListOffsetsTimestamp.LATEST:
        return TimestampAndOffset(NO_TIMESTAMP, local.log_end_offset, epochs.latest_epoch)
    if timestamp == ListOffsetsTimestamp.LATEST_TIERED:
        return TimestampAndOffset(NO_TIMESTAMP, -1, -1)
    if timestamp == ListOffsetsTimestamp.MAX_TIMESTAMP:
        # The first record of the log's largest timestamp; None in a log without records.
        latest = max(local.segments, key=lambda segment: segment.max_timestamp.timestamp)
        place = latest.find_batch(latest.max_timestamp.offset) if latest.max_timestamp.timestamp >= 0 else None
        return None if place is None else _in_batch(latest, place, latest.max_timestamp.timestamp, latest.base_offset)
    # UnifiedLog.searchOffsetInLocalLog, which gives up when the first segment that qualifies has it before the log start.
    for segment in local.segments:
        if segment.largest_timestamp >= timestamp:
            # FileRecords.searchForTimestamp, from where the time index says that it can be at the earliest.
            start = max(segment.time_index.lookup(timestamp).offset, log_start_offset)
            for position, header in segment.records.headers(segment.offset_index.lookup(start).position):
                if header.max_timestamp >= timestamp and header.last_offset >= log_start_offset:
                    found = _in_batch(segment, BatchPlace(position, header), timestamp, log_start_offset)
                    if found is not None:
                        return found
    return None


def _in_batch(segment: LogSegment, place: BatchPlace, timestamp: int, from_offset: int) -> TimestampAndOffset | None:
    for record in records_at(segment.records, place.position, place.header):
        if record.timestamp >= timestamp and record.offset >= from_offset:
            return TimestampAndOffset(record.timestamp, record.offset, place.header.leader_epoch)
    return None
