"""What a log is told of its topic's configs."""

from __future__ import annotations

import uuid

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage, TopicState
from spark_kafka_sink.broker.log.log_config import LogConfig, TimestampType, log_config, min_insync_replicas
from spark_kafka_sink.records.compression import Codec
from tests.every import every


def of(configs: dict[str, str]) -> LogConfig:
    return log_config(BrokerConfig(), MetadataImage(), topic(configs))


def topic(configs: dict[str, str]) -> TopicState:
    return TopicState("t", uuid.uuid4(), (), configs)


def test_without_configs_it_is_kafkas_default() -> None:
    defaults = LogConfig()

    assert of({}) == defaults


def test_fields_have_the_values_of_their_configs() -> None:
    config = of({"retention.ms": "1", "retention.bytes": "2", "max.message.bytes": "3", "segment.ms": "4", "flush.messages": "5"})

    fields = config.retention_ms, config.retention_bytes, config.max_message_bytes, config.segment_ms, config.flush_messages
    assert fields == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True), ("", False, False)],
)
def test_cleanup_policies(policy: str, compact: bool, delete: bool) -> None:
    config = of({"cleanup.policy": policy})

    assert (config.compact, config.delete) == (compact, delete)


@every(
    "codec, kept, level",
    [
        ("producer", None, None),
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, -1),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 9),
        ("zstd", Codec.ZSTD, 3),
    ],
)
def test_the_codec_and_its_level(codec: str, kept: Codec | None, level: int | None) -> None:
    config = of({"compression.type": codec})

    assert (config.compression_type, config.compression_level) == (kept, level)


def test_the_level_of_the_codec_in_use() -> None:
    assert of({"compression.type": "zstd", "compression.zstd.level": "7", "compression.lz4.level": "2"}).compression_level == 7


def test_the_type_of_timestamps() -> None:
    assert of({"message.timestamp.type": "LogAppendTime"}).message_timestamp_type is TimestampType.LOG_APPEND_TIME


def test_small_segments_for_tests() -> None:
    assert of({"internal.segment.bytes": "100"}).segment_bytes == 100


def test_replicas_that_must_be_in_sync() -> None:
    config, image = BrokerConfig(topic_defaults={"min.insync.replicas": "2"}), MetadataImage()

    assert min_insync_replicas(config, image, topic({})) == 2
    assert min_insync_replicas(config, image, topic({"min.insync.replicas": "3"})) == 3
