"""A log's segments in the order of their offsets: Kafka's LogSegments."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from spark_kafka_sink.broker.log.log_segment import LogSegment


class LogSegments:
    """Guarded by the log's lock."""

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._segments = sorted(segments, key=_base_offset)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self._segments))

    def __contains__(self, segment: object) -> bool:
        return segment in self._segments

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def active(self) -> LogSegment:
        """The last one, which is written to."""
        return self._segments[-1]

    @property
    def closed(self) -> list[LogSegment]:
        """All but the active one."""
        return self._segments[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        self._segments.insert(bisect_left(self._segments, segment.base_offset, key=_base_offset), segment)

    def remove(self, segment: LogSegment) -> None:
        self._segments.remove(segment)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that would hold `offset`, and all behind it."""
        return self._segments[max(bisect_right(self._segments, offset, key=_base_offset) - 1, 0) :]

    def is_behind(self, offset: int, end: int) -> bool:
        """Whether `offset` lies in an older segment than `end` (LogOffsetMetadata.onOlderSegment)."""
        place, end_place = (bisect_right(self._segments, at, key=_base_offset) for at in (offset, end))
        return place < end_place

    def end_of(self, segment: LogSegment, log_end_offset: int) -> int:
        """The offset at which the next one begins."""
        after = bisect_right(self._segments, segment.base_offset, key=_base_offset)
        return self._segments[after].base_offset if after < len(self._segments) else log_end_offset


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
