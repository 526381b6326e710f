"""The first offset of each leader epoch (Kafka's LeaderEpochFileCache), and its file."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.broker.log.log_files import write_whole

FILE_NAME = "leader-epoch-checkpoint"
_VERSION = 0


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """Leader epochs and their first offsets, both ascending. Guarded by the log's lock. `path`: None keeps it in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries: list[EpochEntry] = [] if path is None or not path.exists() else _parsed(path.read_text("utf-8"))

    @property
    def latest_epoch(self) -> int:
        """The latest epoch; -1 if there is none."""
        return self._entries[-1].epoch if self._entries else -1

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records that a batch of this epoch comes next, at `start_offset`. After an OSError nothing has changed."""
        if epoch < 0 or (self._entries and epoch == self.latest_epoch and start_offset >= self._entries[-1].start_offset):
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry | None:
        """Returns the last epoch up to `epoch` and its end offset; None if nothing is known of it (Kafka's endOffsetFor)."""
        if epoch < 0 or not self._entries:
            return None
        if epoch == self.latest_epoch:
            return EpochEntry(epoch, log_end_offset)
        after = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if after == len(self._entries):
            return None
        known = self._entries[after - 1].epoch if after else epoch
        return EpochEntry(known, self._entries[after].start_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops entries before `start_offset`, whose epoch now starts there."""
        before = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if before and before != [EpochEntry(before[-1].epoch, start_offset)]:
            self._replace([EpochEntry(before[-1].epoch, start_offset), *self._entries[len(before) :]])

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops entries from `end_offset` on."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if kept != self._entries:
            self._replace(kept)

    def _replace(self, entries: list[EpochEntry]) -> None:
        if self._path is not None:
            lines = [str(_VERSION), str(len(entries)), *(f"{entry.epoch} {entry.start_offset}" for entry in entries)]
            write_whole(self._path, ("\n".join(lines) + "\n").encode())
        self._entries = entries


def _parsed(text: str) -> list[EpochEntry]:
    """Parses the file. Returns no entries if it is not valid; they are then rebuilt from the log."""
    try:
        version, count, *lines = text.splitlines()
        entries = [EpochEntry(*map(int, line.split())) for line in lines]
        return entries if int(version) == _VERSION and int(count) == len(entries) else []
    except (ValueError, TypeError):
        return []
