"""A consumer group's offsets that are committed with a transaction (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from spark_kafka_sink.errors import UsageError


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit. Java's OffsetAndMetadata.

    Attributes:
        offset: next offset to read.
        metadata: any text.
        leader_epoch: epoch of the last record read; -1 if not known.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A consumer group and the member that read the records. Java's ConsumerGroupMetadata.

    The coordinator rejects a member that was removed from the group. With group_id alone nothing is checked.

    Attributes:
        group_id: id of the group.
        generation_id, member_id, group_instance_id: the consumer's.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


TopicPartition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]


def checked_offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets as OffsetAndMetadata. Raises UsageError for an invalid partition or offset."""
    return {_partition(partition): _offset(partition, offset) for partition, offset in offsets.items()}


def checked_group(group: str | ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """Returns the group as ConsumerGroupMetadata. Raises UsageError for an invalid group."""
    made = group if isinstance(group, ConsumerGroupMetadata) else ConsumerGroupMetadata(group)
    if not made.group_id:
        raise UsageError(f"send_offsets_to_transaction: group is {group!r}, must be a group id or a ConsumerGroupMetadata")
    if made.generation_id > 0 and not made.member_id:
        raise UsageError(
            f"send_offsets_to_transaction: generation {made.generation_id} of group {made.group_id} requires a member_id"
        )
    return made


def _partition(partition: object) -> TopicPartition:
    match partition:
        case (str() as topic, int() as number) if number >= 0:
            return topic, number
    raise UsageError(f"send_offsets_to_transaction: {partition!r} is not a (topic, partition) pair")


def _offset(partition: object, offset: object) -> OffsetAndMetadata:
    match offset:
        case OffsetAndMetadata():
            made = offset
        case (int() as number, str() as metadata):
            made = OffsetAndMetadata(number, metadata)
        case int() as number:
            made = OffsetAndMetadata(number)
        case _:
            raise UsageError(f"send_offsets_to_transaction: the offset of {partition!r} is {offset!r}, must be a number")
    if made.offset < 0:
        raise UsageError(f"send_offsets_to_transaction: the offset of {partition!r} is {made.offset}, must not be negative")
    return made
