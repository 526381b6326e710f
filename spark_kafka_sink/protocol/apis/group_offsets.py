"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import NEVER_FLEXIBLE, Api, ApiKey
from spark_kafka_sink.protocol.fields import BOOLEAN, INT16, INT32, INT64, STRING, ArrayOf, Message, message, wire

# OffsetCommit (8): stores the position of a consumer group.


@message
class OffsetCommitRequestPartition(Message):
    """The next offset to read. `committed_leader_epoch` is that of the record before; -1 if unknown."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable_since=0, default="")


@message
class OffsetCommitRequestTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetCommitRequestPartition] = wire(ArrayOf(OffsetCommitRequestPartition), default=())


@message
class OffsetCommitRequest(Message):
    """A commit. Generation -1 with an empty `member_id` is a commit from outside the group. `retention_time_ms` -1: the broker's
    own.
    """

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, default=-1)
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, since=7, nullable_since=7, default=None)
    retention_time_ms: int = wire(INT64, until=4, default=-1, ignorable=True)
    topics: Sequence[OffsetCommitRequestTopic] = wire(ArrayOf(OffsetCommitRequestTopic), default=())


@message
class OffsetCommitResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetCommitResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetCommitResponsePartition] = wire(ArrayOf(OffsetCommitResponsePartition), default=())


@message
class OffsetCommitResponse(Message):
    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    topics: Sequence[OffsetCommitResponseTopic] = wire(ArrayOf(OffsetCommitResponseTopic), default=())


OFFSET_COMMIT = Api(ApiKey.OFFSET_COMMIT, 2, 9, 8, OffsetCommitRequest, OffsetCommitResponse)
"""v10, which identifies topics by id, is unstable in Kafka 4.1: no broker offers it by default."""


# OffsetFetch (9): the positions of consumer groups; from v8 on for several groups at once (KIP-709).


@message
class OffsetFetchRequestTopic(Message):
    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class OffsetFetchRequestTopics(Message):
    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class OffsetFetchRequestGroup(Message):
    """A group. `topics` None requests every partition for which the group has an offset."""

    group_id: str = wire(STRING)
    member_id: str | None = wire(STRING, since=9, nullable_since=9, default=None, ignorable=True)
    member_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    topics: Sequence[OffsetFetchRequestTopics] | None = wire(ArrayOf(OffsetFetchRequestTopics), nullable_since=0, default=())


@message
class OffsetFetchRequest(Message):
    """A request for offsets: up to v7 one group in `group_id` and `topics`, from v8 on `groups`.

    `require_stable`: UNSTABLE_OFFSET_COMMIT if a transaction is about to commit offsets (KIP-447).
    """

    group_id: str = wire(STRING, until=7, default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = wire(
        ArrayOf(OffsetFetchRequestTopic), until=7, nullable_since=2, default=()
    )
    groups: Sequence[OffsetFetchRequestGroup] = wire(ArrayOf(OffsetFetchRequestGroup), since=8, default=())
    require_stable: bool = wire(BOOLEAN, since=7, default=False)


@message
class OffsetFetchResponsePartition(Message):
    """The offset of a partition. `committed_offset` is -1 if the group has none."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=5, default=-1, ignorable=True)
    metadata: str | None = wire(STRING, nullable_since=0, default="")
    error_code: int = wire(INT16, default=0)


@message
class OffsetFetchResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetFetchResponsePartition] = wire(ArrayOf(OffsetFetchResponsePartition), default=())


@message
class OffsetFetchResponsePartitions(Message):
    """The offset of a partition, with the fields of OffsetFetchResponsePartition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1)
    metadata: str | None = wire(STRING, nullable_since=0, default="")
    error_code: int = wire(INT16, default=0)


@message
class OffsetFetchResponseTopics(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetFetchResponsePartitions] = wire(ArrayOf(OffsetFetchResponsePartitions), default=())


@message
class OffsetFetchResponseGroup(Message):
    group_id: str = wire(STRING)
    topics: Sequence[OffsetFetchResponseTopics] = wire(ArrayOf(OffsetFetchResponseTopics), default=())
    error_code: int = wire(INT16, default=0)


@message
class OffsetFetchResponse(Message):
    """The response: up to v7 one group in `topics` and `error_code`, from v8 on `groups`."""

    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    topics: Sequence[OffsetFetchResponseTopic] = wire(ArrayOf(OffsetFetchResponseTopic), until=7, default=())
    error_code: int = wire(INT16, since=2, until=7, default=0, ignorable=True)
    groups: Sequence[OffsetFetchResponseGroup] = wire(ArrayOf(OffsetFetchResponseGroup), since=8, default=())


OFFSET_FETCH = Api(ApiKey.OFFSET_FETCH, 1, 9, 6, OffsetFetchRequest, OffsetFetchResponse)
"""v10, which identifies topics by id, is unstable in Kafka 4.1: no broker offers it by default."""


# OffsetDelete (47): deletes a group's positions in some partitions (KIP-496).


@message
class OffsetDeleteRequestPartition(Message):
    partition_index: int = wire(INT32)


@message
class OffsetDeleteRequestTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteRequestPartition] = wire(ArrayOf(OffsetDeleteRequestPartition), default=())


@message
class OffsetDeleteRequest(Message):
    group_id: str = wire(STRING)
    topics: Sequence[OffsetDeleteRequestTopic] = wire(ArrayOf(OffsetDeleteRequestTopic), default=())


@message
class OffsetDeleteResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message
class OffsetDeleteResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteResponsePartition] = wire(ArrayOf(OffsetDeleteResponsePartition), default=())


@message
class OffsetDeleteResponse(Message):
    error_code: int = wire(INT16, default=0)
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[OffsetDeleteResponseTopic] = wire(ArrayOf(OffsetDeleteResponseTopic), default=())


OFFSET_DELETE = Api(ApiKey.OFFSET_DELETE, 0, 0, NEVER_FLEXIBLE, OffsetDeleteRequest, OffsetDeleteResponse)
