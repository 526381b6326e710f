"""The snapshot files of a log's producers: one for each place that a restart may begin from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark_kafka_sink.broker.log.log_files import SNAPSHOT_SUFFIX, file_name, offset_of
from spark_kafka_sink.broker.log.producer_snapshot import CorruptSnapshotError, parse_snapshot, snapshot_bytes
from spark_kafka_sink.broker.log.producer_state_manager import ProducerStateManager
from spark_kafka_sink.broker.log.replaced_file import write_whole


class ProducerSnapshots:
    """Named for the offset that they are taken at. folder: None keeps none. Guarded by its log's lock."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        found = [] if folder is None else [offset_of(path, SNAPSHOT_SUFFIX) for path in folder.glob(f"*{SNAPSHOT_SUFFIX}")]
        self.offsets = sorted(offset for offset in found if offset is not None)

    def take(self, state: ProducerStateManager) -> None:
        """At the end of what `state` has seen, unless there is one. OSError with nothing changed."""
        offset = state.map_end_offset
        if self._folder is None or (self.offsets and offset <= self.offsets[-1]):
            return
        write_whole(self._path(offset), snapshot_bytes(state.entries()))
        self.offsets.append(offset)

    def load_latest(self, state: ProducerStateManager, log_start: int, end_offset: int, now_ms: int) -> None:
        """Takes over the last snapshot that is not behind `end_offset`; from `log_start` on, empty, where there is none."""
        self.delete_if(lambda offset: offset > end_offset)
        while self.offsets:
            offset = self.offsets[-1]
            try:
                state.load(parse_snapshot(self._path(offset).read_bytes()), offset, now_ms)
                return
            except (CorruptSnapshotError, OSError):
                self._delete(offset)
        state.load([], log_start, now_ms)

    def delete_before(self, offset: int) -> None:
        self.delete_if(lambda other: other < offset)

    def delete_if(self, unwanted: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.offsets if unwanted(offset)]:
            self._delete(offset)

    def _delete(self, offset: int) -> None:
        self._path(offset).unlink(missing_ok=True)
        self.offsets.remove(offset)

    def _path(self, offset: int) -> Path:
        assert self._folder is not None
        return self._folder / file_name(offset, SNAPSHOT_SUFFIX)
