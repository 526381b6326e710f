"""The files of a partition's folder: names, small files, checkpoints and leader epochs."""

from __future__ import annotations

import base64
import os
import re
import shutil
import uuid
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.protocol.error_codes import ErrorCode

TEMPORARY_SUFFIX = ".tmp"


LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_DIGITS = 20


PARTITION_METADATA = "partition.metadata"
# Kafka has one file of each of the next two kinds per data folder, for all partitions. Here a log knows only its own folder.
# Kafka's log loader ignores both.
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DELETED_FOLDER_SUFFIX = "-delete"
STRAY_FOLDER_SUFFIX = "-stray"
_DELETED_FOLDER = re.compile(rf"\.[0-9a-f]{{32}}{DELETED_FOLDER_SUFFIX}$")
_LONGEST_NAME = 255


@contextmanager
def storage_errors(name: str) -> Iterator[None]:
    """Converts an OSError, such as for a full disk, to KAFKA_STORAGE_ERROR, which clients retry."""
    try:
        yield
    except OSError as error:
        raise ApiException(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {name}: {error}") from error


def write_whole(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Writes a file atomically: under another name first, then renamed. After an OSError nothing has changed."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class SegmentFiles:
    """The files of the segment with this `base_offset`. `suffix` marks files that are not in use yet."""

    def __init__(self, folder: Path, base_offset: int, suffix: str = "") -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.log, self.offset_index, self.time_index, self.txn_index = (
            folder / f"{file_name(base_offset, kind)}{suffix}"
            for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        )

    def delete_indexes(self) -> None:
        """Deletes the index files, which can be rebuilt from the log."""
        for path in (self.offset_index, self.time_index, self.txn_index):
            path.unlink(missing_ok=True)

    def delete(self) -> None:
        self.log.unlink(missing_ok=True)
        self.delete_indexes()


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:0{_DIGITS}d}{suffix}"


def offset_of(path: Path, suffix: str) -> int | None:
    """Returns the offset in a file's name; None if it is not a file of that kind."""
    stem = path.name.removesuffix(suffix)
    return int(stem) if stem != path.name and len(stem) == _DIGITS and stem.isascii() and stem.isdigit() else None


def write_partition_metadata(folder: Path, topic_id: uuid.UUID) -> None:
    """Writes Kafka's PartitionMetadataFile, once."""
    path = folder / PARTITION_METADATA
    if not path.exists():
        # The format of Kafka's Uuid.toString: URL-safe base64 without padding.
        text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
        write_whole(path, f"version: 0\ntopic_id: {text}".encode())


def read_topic_id(folder: Path) -> uuid.UUID | None:
    """Returns the topic id in the file; None if there is no such file or no id in it."""
    path = folder / PARTITION_METADATA
    if not path.exists():
        return None
    for line in path.read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return uuid.UUID(bytes=base64.urlsafe_b64decode(value.strip() + "=="))
            except ValueError:
                return None
    return None


class Checkpoints:
    """Offsets of a log that are stored beside it, in the format of Kafka's OffsetCheckpointFile with one entry.

    `folder`: None writes nothing. After an OSError the old content is in place.
    """

    def __init__(self, folder: Path | None, topic: str, partition: int) -> None:
        self._folder = folder
        self._name = f"{topic} {partition}"

    def write_log_start(self, offset: int) -> None:
        self._write(LOG_START_OFFSET_CHECKPOINT, offset, sync=False)

    def write_recovery_point(self, offset: int) -> None:
        """Stores the offset before which everything is flushed."""
        self._write(RECOVERY_POINT_CHECKPOINT, offset, sync=True)

    def mark_clean_shutdown(self) -> None:
        if self._folder is not None:
            (self._folder / CLEAN_SHUTDOWN).touch(0o600)

    def _write(self, name: str, offset: int, *, sync: bool) -> None:
        if self._folder is not None:
            write_whole(self._folder / name, f"0\n1\n{self._name} {offset}\n".encode(), sync=sync)


def read_offset_checkpoint(path: Path) -> int:
    """Returns the offset in the file, or 0 if there is none."""
    try:
        return int(path.read_text("utf-8").splitlines()[2].split()[2])
    except (FileNotFoundError, IndexError, ValueError):
        return 0


def renamed_away(folder: Path, suffix: str) -> Path:
    """Renames a folder to a name that no log has, and returns the new path.

    The name is shortened for the file system (Kafka's logDirNameWithSuffixCappedLength).
    """
    unique = f".{uuid.uuid4().hex}{suffix}"
    return folder.rename(folder.with_name(folder.name[: _LONGEST_NAME - len(unique)] + unique))


def delete_folder(folder: Path) -> None:
    """Deletes a log's folder, if it exists. It is renamed first, as in Kafka, so a crash cannot leave half a log."""
    if folder.exists():
        shutil.rmtree(renamed_away(folder, DELETED_FOLDER_SUFFIX))


def finish_deletions(data_dir: Path) -> None:
    """Removes the rest of deleted logs. Call it before the logs of a data folder are opened."""
    for folder in data_dir.glob(f"*{DELETED_FOLDER_SUFFIX}"):
        if _DELETED_FOLDER.search(folder.name):
            shutil.rmtree(folder, ignore_errors=True)  # leftovers are harmless, and the next start tries again


LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
_EPOCHS_VERSION = 0


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
            lines = [str(_EPOCHS_VERSION), str(len(entries)), *(f"{entry.epoch} {entry.start_offset}" for entry in entries)]
            write_whole(self._path, ("\n".join(lines) + "\n").encode())
        self._entries = entries


def _parsed(text: str) -> list[EpochEntry]:
    """Parses the file. Returns no entries if it is not valid; they are then rebuilt from the log."""
    try:
        version, count, *lines = text.splitlines()
        entries = [EpochEntry(*map(int, line.split())) for line in lines]
        return entries if int(version) == _EPOCHS_VERSION and int(count) == len(entries) else []
    except (ValueError, TypeError):
        return []
