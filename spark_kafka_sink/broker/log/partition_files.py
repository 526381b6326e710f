"""The small files beside a partition's segments."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from spark_kafka_sink.broker.log.replaced_file import write_whole

PARTITION_METADATA = "partition.metadata"
# Kafka keeps the next two once per data folder, for all partitions; here a log knows only its own folder. Kafka's log loader
# passes over both.
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def write_partition_metadata(folder: Path, topic_id: uuid.UUID) -> None:
    """Kafka's PartitionMetadataFile, once."""
    path = folder / PARTITION_METADATA
    if not path.exists():
        write_whole(path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode(), sync=True)


def read_topic_id(folder: Path) -> uuid.UUID | None:
    """None where there is no such file, or no id in it."""
    path = folder / PARTITION_METADATA
    if not path.exists():
        return None
    for line in path.read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            return _uuid_of(value.strip())
    return None


def uuid_text(topic_id: uuid.UUID) -> str:
    """As Kafka's Uuid.toString: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _uuid_of(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError:
        return None


def write_offset_checkpoint(path: Path, topic: str, partition: int, offset: int, *, sync: bool = False) -> None:
    """Kafka's OffsetCheckpointFile with one entry."""
    write_whole(path, f"0\n1\n{topic} {partition} {offset}\n".encode(), sync=sync)


def read_offset_checkpoint(path: Path, otherwise: int) -> int:
    """`otherwise` where there is no such file or no offset in it."""
    try:
        return int(path.read_text("utf-8").splitlines()[2].split()[2])
    except (FileNotFoundError, IndexError, ValueError):
        return otherwise
