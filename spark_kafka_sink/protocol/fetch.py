"""Fetch (1): record batches of partitions from an offset on, with sessions that name only what changed (KIP-227)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from spark_kafka_sink.protocol.wire_types import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, ZERO_UUID, ArrayOf, Records


@message
class FetchPartition(Message):
    """From `fetch_offset` on, `partition_max_bytes` at most but one batch at least; `current_leader_epoch` fences (-1: does not).

    Only followers set `log_start_offset`, `replica_directory_id` and `high_watermark` (2^63 - 1: not told, KIP-1166).
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
    """Up to v12 `topic` names the topic, from v13 `topic_id`; the other one is not sent."""

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
    """The state of a follower; a consumer has -1 in both."""

    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)


@message
class FetchRequest(Message):
    """Waits up to `max_wait_ms` for `min_bytes` in all. `isolation_level`: 0 read_uncommitted, 1 read_committed.

    Session 0 with epoch -1 is a fetch without a session, with epoch 0 one that asks for a session.
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
    """Read_committed drops this producer's records from `first_offset` on until its abort marker."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@message
class EpochEndOffset(Message):
    """Where the largest epoch ends that both sides have: what comes behind differs (KIP-595)."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@message
class SnapshotId(Message):
    """For FetchSnapshot, where the offset is before the log's start; only in KRaft's own log."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@message
class PartitionData(Message):
    """Offsets are -1 where unknown; `records` may be several buffers that lie one after another on the wire.

    The tagged ones are None where not sent. `aborted_transactions` is None for read_uncommitted.
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
    """`error_code` is the session's; a partition has its own. An incremental answer has only the partitions with news."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=7, default=0, ignorable=True)
    session_id: int = wire(INT32, since=7, default=0)
    responses: Sequence[FetchableTopicResponse] = wire(ArrayOf(FetchableTopicResponse), default=())
    node_endpoints: Sequence[NodeEndpoint] = wire(ArrayOf(NodeEndpoint), since=16, tag=0, default=())


FETCH = Api(ApiKey.FETCH, 4, 18, 12, FetchRequest, FetchResponse)
"""v4 is the first whose answers carry record batches of magic 2."""
