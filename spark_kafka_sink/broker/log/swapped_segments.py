"""Segments that compaction puts in the place of others, so that a crash leaves the old ones or the new one.

The new segment is written under `.cleaned`, which a start deletes. Renamed to `.swap` it counts: a start deletes the segments
whose offsets it covers, and gives it its name (LogLoader's first three passes). Indexes are made again then.
"""

from __future__ import annotations

import os
from pathlib import Path

from spark_kafka_sink.broker.log.file_records import FileRecords
from spark_kafka_sink.broker.log.log_files import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, SegmentFiles, offset_of
from spark_kafka_sink.broker.log.log_segment import LogSegment


def begin_swap(cleaned: LogSegment) -> None:
    """From here on a start goes on with the new segment."""
    _rename(cleaned, CLEANED_SUFFIX, SWAP_SUFFIX)


def end_swap(cleaned: LogSegment) -> None:
    """The old segments are deleted."""
    _rename(cleaned, SWAP_SUFFIX, "")


def _rename(segment: LogSegment, before: str, after: str) -> None:
    records, files = segment.records, segment.files
    if files is None or not isinstance(records, FileRecords):
        return
    assert files.suffix == before
    segment.files = SegmentFiles(files.folder, files.base_offset, after)
    records.rename(segment.files.log)


def finish_swaps(folder: Path) -> None:
    """What a crash left of a swap, before the segments are loaded."""
    for swapped in folder.glob(f"*{LOG_SUFFIX}{SWAP_SUFFIX}"):
        target = swapped.with_name(swapped.name.removesuffix(SWAP_SUFFIX))
        first = offset_of(target, LOG_SUFFIX)
        if first is not None:
            end = max((header.next_offset for _, header in FileRecords(swapped).headers()), default=first)
            for other in folder.glob(f"*{LOG_SUFFIX}"):
                offset = offset_of(other, LOG_SUFFIX)
                if offset is not None and first <= offset < max(end, first + 1):
                    _delete_segment(SegmentFiles(folder, offset))
            os.replace(swapped, target)


def _delete_segment(files: SegmentFiles) -> None:
    for path in (files.log, files.offset_index, files.time_index, files.txn_index):
        path.unlink(missing_ok=True)
