"""A consumer group's offsets that a transaction commits with its records (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from spark_kafka_sink.errors import UsageError


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """offset: of the next record to be read. metadata: any text. leader_epoch: of the last record read, -1 if not known.

    Java's OffsetAndMetadata.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A group, and the consumer of it that read the records: the coordinator refuses one that has been put out of the group.

    group_id: the group's. generation_id, member_id, group_instance_id: the consumer's; with group_id alone nothing is checked.

    Java's ConsumerGroupMetadata.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


TopicPartition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]


def checked_offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Each as an OffsetAndMetadata. UsageError for what is no offset or no partition."""
    return {_partition(partition): _offset(partition, offset) for partition, offset in offsets.items()}


def checked_group(group: str | ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """Returns the group as ConsumerGroupMetadata. UsageError for what is no group."""
    made = group if isinstance(group, ConsumerGroupMetadata) else ConsumerGroupMetadata(group)
    if not made.group_id:
        raise UsageError(f"send_offsets: group is {group!r}, must be a group's id or a ConsumerGroupMetadata")
    if made.generation_id > 0 and not made.member_id:
        raise UsageError(f"send_offsets: group {made.group_id} has the generation {made.generation_id} and no member_id")
    return made


def _partition(partition: object) -> TopicPartition:
    match partition:
        case (str() as topic, int() as number) if number >= 0:
            return topic, number
    raise UsageError(f"send_offsets: {partition!r} is no (topic, partition)")


def _offset(partition: object, offset: object) -> OffsetAndMetadata:
    match offset:
        case OffsetAndMetadata():
            made = offset
        case (int() as number, str() as metadata):
            made = OffsetAndMetadata(number, metadata)
        case int() as number:
            made = OffsetAndMetadata(number)
        case _:
            raise UsageError(f"send_offsets: the offset of {partition!r} is {offset!r}, must be a number")
    if made.offset < 0:
        raise UsageError(f"send_offsets: the offset of {partition!r} is {made.offset}, must not be negative")
    return made
