"""The names of the files in a partition's folder, as Kafka's LogFileUtils gives them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Of the segment that begins at `base_offset`; `suffix` marks files that are not in use yet."""

    folder: Path
    base_offset: int
    suffix: str = ""

    @property
    def log(self) -> Path:
        return self._path(LOG_SUFFIX)

    @property
    def offset_index(self) -> Path:
        return self._path(INDEX_SUFFIX)

    @property
    def time_index(self) -> Path:
        return self._path(TIME_INDEX_SUFFIX)

    @property
    def txn_index(self) -> Path:
        return self._path(TXN_INDEX_SUFFIX)

    def last_modified_ms(self, otherwise: int) -> int:
        try:
            return self.log.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return otherwise

    def _path(self, kind: str) -> Path:
        return self.folder / f"{file_name(self.base_offset, kind)}{self.suffix}"


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:0{_DIGITS}d}{suffix}"


def offset_of(path: Path, suffix: str) -> int | None:
    """The offset in a file's name; None when it is no file of that kind."""
    stem = path.name.removesuffix(suffix)
    return int(stem) if stem != path.name and len(stem) == _DIGITS and stem.isascii() and stem.isdigit() else None
