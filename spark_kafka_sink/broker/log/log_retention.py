"""Which segments a log may drop. Pure: the oldest go first, and one that must stay keeps all behind it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.broker.log.log_segment import LogSegment
from spark_kafka_sink.broker.log.log_segments import LogSegments


def deletable_segments(segments: LogSegments, config: LogConfig, log_start_offset: int, now_ms: int) -> list[LogSegment]:
    """UnifiedLog.deleteOldSegments: what lies before the log start always, by size and time where the topic deletes. The active
    segment too, unless it is empty."""
    doomed = segments_before(segments, log_start_offset)
    left = list(segments)[len(doomed) :]
    if config.delete and config.retention_bytes >= 0:
        doomed += _take(left, _over_size(sum(segment.size for segment in left) - config.retention_bytes))
    if config.delete and config.retention_ms >= 0:
        doomed += _take(left, lambda segment: now_ms - segment.largest_timestamp > config.retention_ms)
    return doomed


def segments_before(segments: LogSegments, log_start_offset: int) -> list[LogSegment]:
    """Those of which no record may be read any more."""
    return [segment for segment in segments.closed if segments.end_of(segment, -1) <= log_start_offset]


def old_segments(segments: LogSegments, end_offset: int, lag_ms: int, now_ms: int) -> list[LogSegment]:
    """The closed ones that end before `end_offset`, up to the first with a record that is younger than the lag; without a lag
    records may be of the future."""
    left = [segment for segment in segments.closed if segments.end_of(segment, end_offset) <= end_offset]
    return left if lag_ms <= 0 else list(takewhile(lambda segment: now_ms - segment.largest_timestamp >= lag_ms, left))


def _take(left: list[LogSegment], rule: Callable[[LogSegment], bool]) -> list[LogSegment]:
    taken: list[LogSegment] = []
    while left and (len(left) > 1 or left[0].size > 0) and rule(left[0]):
        taken.append(left.pop(0))
    return taken


def _over_size(excess: int) -> Callable[[LogSegment], bool]:
    """As long as what is left is still as large as the limit."""
    left = [excess]

    def is_over(segment: LogSegment) -> bool:
        left[0] -= segment.size
        return left[0] >= 0

    return is_over
