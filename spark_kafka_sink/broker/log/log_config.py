"""The topic configs that control logs (Kafka's LogConfig), with the defaults of 4.1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import effective_config, effective_configs
from spark_kafka_sink.broker.cluster.metadata_image import TopicState
from spark_kafka_sink.records.compression import Codec

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


def min_insync_replicas(config: BrokerConfig, topic: TopicState) -> int:
    """Returns the number of in-sync replicas that acks=all needs."""
    value: int = effective_config(config, topic.configs, "min.insync.replicas")
    return value
