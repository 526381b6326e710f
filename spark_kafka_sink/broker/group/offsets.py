"""How far groups have read, and what open transactions are about to change of it (Kafka's OffsetMetadataManager). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_kafka_sink.protocol.internal_topics import OffsetCommitValue

NO_EPOCH: Final = -1
NO_EXPIRY: Final = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """`offset` is the one to read next. Timestamps in ms since 1970.

    expire_timestamp_ms: NO_EXPIRY, or what a client before v5 asked for. record_offset: where it is in `__consumer_offsets`.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    record_offset: int = -1

    def record(self) -> OffsetCommitValue:
        return OffsetCommitValue(
            self.offset, self.leader_epoch, self.metadata, self.commit_timestamp_ms, self.expire_timestamp_ms
        )


def offset_of(value: OffsetCommitValue, record_offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, record_offset
    )


Offsets = dict[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True)
class OffsetStore:
    """By group. `pending`: by group and producer id, until its transaction ends."""

    committed: dict[str, Offsets] = field(default_factory=lambda: defaultdict(dict))
    pending: dict[str, dict[int, Offsets]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.committed.get(group_id, {})

    def commit(self, group_id: str, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        self.committed[group_id][partition] = offset

    def commit_pending(self, group_id: str, producer_id: int, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        self.pending[group_id][producer_id][partition] = offset

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.get(group_id, {}).values())

    def has_open_transaction(self, group_id: str) -> bool:
        """Also one whose offsets have been deleted meanwhile."""
        return group_id in self.pending

    def every(self, group_id: str) -> Iterator[TopicPartition]:
        """All that a group has an offset of, or is about to: each once."""
        pending = (partition for offsets in self.pending.get(group_id, {}).values() for partition in offsets)
        return iter(dict.fromkeys([*self.of(group_id), *pending]))

    def forget(self, group_id: str, partition: TopicPartition) -> None:
        """A tombstone: of what is pending too."""
        committed = self.committed.get(group_id, {})
        committed.pop(partition, None)
        if not committed:
            self.committed.pop(group_id, None)
        for offsets in self.pending.get(group_id, {}).values():
            offsets.pop(partition, None)

    def end_transaction(self, producer_id: int, *, committed: bool, is_in: Callable[[str], bool]) -> None:
        """In the groups for which `is_in` says yes: those of the partition of `__consumer_offsets` that got the marker."""
        for group_id in [group_id for group_id, open_ones in self.pending.items() if producer_id in open_ones]:
            if is_in(group_id):
                offsets = self.pending[group_id].pop(producer_id)
                if not self.pending[group_id]:
                    del self.pending[group_id]
                if committed:
                    self._materialize(group_id, offsets)

    def _materialize(self, group_id: str, offsets: Offsets) -> None:
        for partition, offset in offsets.items():
            known = self.of(group_id).get(partition)
            # The later record counts, also where an ordinary commit came into a transaction: so it is after compaction too.
            if known is None or offset.record_offset > known.record_offset:
                self.commit(group_id, partition, offset)

    def groups(self) -> Collection[str]:
        return {*self.committed, *self.pending}
