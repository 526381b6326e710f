"""Fetch (1): record batches of partitions, with sessions that send only changes (KIP-227)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import MEGABYTE, Api, ApiKey
from spark_kafka_sink.protocol.apis.produce import LeaderIdAndEpoch, NodeEndpoint
from spark_kafka_sink.protocol.fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    ZERO_UUID,
    ArrayOf,
    Message,
    Records,
    message,
    wire,
)


@message
class FetchPartition(Message):
    """A partition to read from `fetch_offset` on, up to `partition_max_bytes` but at least one batch.

    `current_leader_epoch` fences; -1 does not. Only followers set `log_start_offset`, `replica_directory_id` and `high_watermark`
    (2^63 - 1: unknown, KIP-1166).
    """

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = wire(INT64, default=0)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32, default=0)
    replica_directory_id: uuid.UUID = wire(UUID, since=17, tag=0, default=ZERO_UUID)
    high_watermark: int = wire(INT64, since=18, tag=1, default=2**63 - 1)


@message
class FetchTopic(Message):
    """A topic to read, by `topic` up to v12 and by `topic_id` from v13 on. The other one is not sent."""

    topic: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[FetchPartition] = wire(ArrayOf(FetchPartition), default=())


@message
class ForgottenTopic(Message):
    """Partitions that leave the session."""

    topic: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[int] = wire(ArrayOf(INT32), default=())


@message
class ReplicaState(Message):
    """The state of a follower. A consumer has -1 in both fields."""

    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)


@message
class FetchRequest(Message):
    """A request that waits up to `max_wait_ms` for `min_bytes` in total. `isolation_level`: 0 read_uncommitted, 1 read_committed.

    Session 0 with epoch -1 is a fetch without a session; with epoch 0 it requests a session.
    """

    replica_id: int = wire(INT32, until=14, default=-1)
    max_wait_ms: int = wire(INT32, default=0)
    min_bytes: int = wire(INT32, default=0)
    max_bytes: int = wire(INT32, default=2**31 - 1)
    isolation_level: int = wire(INT8, default=0)
    session_id: int = wire(INT32, since=7, default=0, ignorable=True)
    session_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    topics: Sequence[FetchTopic] = wire(ArrayOf(FetchTopic), default=())
    forgotten_topics_data: Sequence[ForgottenTopic] = wire(ArrayOf(ForgottenTopic), since=7, default=())
    rack_id: str = wire(STRING, since=11, default="", ignorable=True)
    cluster_id: str | None = wire(STRING, since=12, nullable_since=12, tag=0, default=None)
    replica_state: ReplicaState | None = wire(ReplicaState, since=15, tag=1, default=None)


@message
class AbortedTransaction(Message):
    """An aborted transaction. Under read_committed, drop the producer's records from `first_offset` to its abort marker."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@message
class EpochEndOffset(Message):
    """The end of the largest common epoch: everything after it differs (KIP-595)."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@message
class SnapshotId(Message):
    """A snapshot for FetchSnapshot if the offset is before the log's start; only in KRaft's own log."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@message
class PartitionData(Message):
    """The data of a partition. Offsets are -1 if unknown; `records` may be several consecutive buffers.

    Tagged fields are None if they were not sent. `aborted_transactions` is None for read_uncommitted.
    """

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    aborted_transactions: Sequence[AbortedTransaction] | None = wire(ArrayOf(AbortedTransaction), nullable_since=0, default=None)
    preferred_read_replica: int = wire(INT32, since=11, default=-1)
    records: Records | None = wire(RECORDS, nullable_since=0, default=None)
    diverging_epoch: EpochEndOffset | None = wire(EpochEndOffset, since=12, tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = wire(LeaderIdAndEpoch, since=12, tag=1, default=None)
    snapshot_id: SnapshotId | None = wire(SnapshotId, since=12, tag=2, default=None)


@message
class FetchableTopicResponse(Message):
    topic: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[PartitionData] = wire(ArrayOf(PartitionData), default=())


@message
class FetchResponse(Message):
    """The response. `error_code` is the session's; each partition has its own. Incremental ones have only changed partitions."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=7, default=0, ignorable=True)
    session_id: int = wire(INT32, since=7, default=0)
    responses: Sequence[FetchableTopicResponse] = wire(ArrayOf(FetchableTopicResponse), default=())
    node_endpoints: Sequence[NodeEndpoint] = wire(ArrayOf(NodeEndpoint), since=16, tag=0, default=())


FETCH = Api(ApiKey.FETCH, 4, 18, 12, FetchRequest, FetchResponse, max_response_bytes=5 * MEGABYTE)
"""v4 is the first version whose responses have record batches of magic 2."""
