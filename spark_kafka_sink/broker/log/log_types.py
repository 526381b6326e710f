"""The settings of a log (Kafka's LogConfig, with the defaults of 4.1), and the values that go into it and out."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.metadata_image import TopicState
from spark_kafka_sink.broker.server_properties import effective_configs
from spark_kafka_sink.records.compression import Buffer, Codec

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class PartitionName(NamedTuple):
    topic: str
    partition: int
    topic_id: uuid.UUID


class LogHooks(NamedTuple):
    """The callbacks of a log.

    on_advance: called without the log's lock after each append. check_disk: called with the size of each append; it may raise
    OSError, which fails the append like a full disk.
    """

    wall_ms: Callable[[], int]
    on_advance: Callable[[], None] = lambda: None
    check_disk: Callable[[int], None] = lambda size: None


class AppendOrigin(Enum):
    """The writer of a batch, which decides the checks.

    Coordinators' records have no sequence numbers. Records of a log that is read again (REPLICATION) were checked when they were
    written.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class IsolationLevel(IntEnum):
    """The isolation level of a request, which decides how far a consumer may read."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The result of an append. `log_append_time_ms` is -1 if records keep their producer's timestamps.

    `duplicate`: the records were already in the log, at these offsets.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class AbortedTransaction(NamedTuple):
    """An aborted transaction as Fetch returns it."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchDataInfo:
    """The result of a read.

    records: batches end to end, the last possibly cut off; later changes of the log do not affect them. aborted_transactions:
    None unless READ_COMMITTED was requested. is_behind: a later segment has more to read than this read returns.
    """

    records: list[Buffer]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTransaction] | None = None
    is_behind: bool = False

    @property
    def size(self) -> int:
        """The number of bytes in `records`."""
        return sum(map(len, self.records))


class TimestampAndOffset(NamedTuple):
    """A result of ListOffsets. The timestamp is -1 for the ends of a log; the leader epoch is -1 if it is unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """A result of DescribeProducers. A value is -1 if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


INT64_MAX = 2**63 - 1
_DAY_MS = 24 * 60 * 60 * 1000
_DEFAULT_LEVELS = {Codec.NONE: 0, Codec.GZIP: -1, Codec.SNAPPY: 0, Codec.LZ4: 9, Codec.ZSTD: 3}


class TimestampType(IntEnum):
    """Timestamp types, as the bit in a batch's attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The configs of a log. Each field is the topic config of that name, with dots. Sizes are in bytes; -1 means no limit.

    `compression_type`: None keeps the producer's codec. `compression_level`: the level for that codec; None is its default.
    """

    compact: bool = False
    delete: bool = True
    compression_type: Codec | None = None
    compression_level: int | None = None
    delete_retention_ms: int = _DAY_MS
    flush_messages: int = INT64_MAX
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1024 * 1024 * 1024
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS

    def level_of(self, codec: Codec) -> int:
        """Returns the compression level for a codec: the topic's, or else Kafka's default for the codec."""
        return _DEFAULT_LEVELS[codec] if self.compression_level is None else self.compression_level


_CODECS: Final = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE}}
_TIMESTAMP_TYPES: Final = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
# Fields of LogConfig with the same name and value as their config.
_SAME: Final = tuple(
    name
    for name in LogConfig.__dataclass_fields__
    if name not in {"compact", "delete", "compression_type", "compression_level", "message_timestamp_type", "segment_bytes"}
)


def log_config(config: BrokerConfig, topic: TopicState) -> LogConfig:
    """Returns the configs in force: the topic's, then `topic_defaults`, then Kafka's defaults."""
    values = effective_configs(config, topic.configs)
    codec = values["compression.type"]
    return LogConfig(
        compact="compact" in values["cleanup.policy"],
        delete="delete" in values["cleanup.policy"],
        compression_type=_CODECS.get(codec),
        compression_level=values.get(f"compression.{codec}.level"),
        message_timestamp_type=_TIMESTAMP_TYPES[values["message.timestamp.type"]],
        segment_bytes=values["internal.segment.bytes"] or values["segment.bytes"],
        **{name: values[name.replace("_", ".")] for name in _SAME},
    )
