"""The configs of a topic as its logs have them."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import effective_config, effective_configs
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage, TopicState
from spark_kafka_sink.broker.log.log_config import LogConfig, TimestampType
from spark_kafka_sink.records.compression import Codec

_CODECS: Final = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE}}
_TIMESTAMP_TYPES: Final = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
# Fields of LogConfig that have the name and the value of their config.
_SAME: Final = tuple(
    name
    for name in LogConfig.__dataclass_fields__
    if name not in {"compact", "delete", "compression_type", "compression_level", "message_timestamp_type", "segment_bytes"}
)


def log_config(config: BrokerConfig, image: MetadataImage, topic: TopicState) -> LogConfig:
    """What was set for the topic, over what was set for brokers while they run, over `topic_defaults`, over Kafka's defaults."""
    values = effective_configs(config, image, topic.configs)
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


def min_insync_replicas(config: BrokerConfig, image: MetadataImage, topic: TopicState) -> int:
    """How many replicas must be in sync for acks=all."""
    value: int = effective_config(config, image, topic.configs, "min.insync.replicas")
    return value
