"""Topic configs are known by name, and checked one by one and together."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.effective_config import check_topic_defaults, checked_topic_configs, effective_config
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.protocol.error_codes import ErrorCode

DEFAULTS = BrokerConfig()


def refusal(config: BrokerConfig = DEFAULTS, **configs: str | None) -> str | None:
    with pytest.raises(ApiException) as refused:
        checked(config, **configs)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


def checked(config: BrokerConfig = DEFAULTS, **configs: str | None) -> dict[str, str]:
    return checked_topic_configs(config, MetadataImage(), {name.replace("_", "."): text for name, text in configs.items()})


def test_what_is_good_is_kept_as_it_was_written() -> None:
    written = {"retention.ms": " 5 ", "cleanup.policy": "compact, delete", "preallocate": "TRUE"}

    assert checked_topic_configs(DEFAULTS, MetadataImage(), written) == written


def test_every_default_is_valid() -> None:
    for key in TOPIC_CONFIGS.values():
        text = key.text(key.default)
        assert text is None or key.parse(text) == key.default, key.name


def test_every_config_says_what_it_does() -> None:
    assert all(key.doc.endswith(".") for key in TOPIC_CONFIGS.values())


def test_all_that_are_set_to_nothing_are_named() -> None:
    assert refusal(retention_ms=None, foo=None) == "Null value not supported for topic configs: retention.ms,foo"


def test_an_unknown_name_is_named_before_a_wrong_value() -> None:
    assert refusal(retention_ms="x", foo="1") == "Unknown topic config name: foo"


@pytest.mark.parametrize(
    "name",
    ["message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms", "Retention.ms", ""],
)
def test_what_kafka_4_has_no_more_is_unknown(name: str) -> None:
    with pytest.raises(ApiException, match="Unknown topic config name"):
        checked_topic_configs(DEFAULTS, MetadataImage(), {name: "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compression_gzip_level", "0"),
        ("compression_gzip_level", "10"),
        ("compression_lz4_level", "18"),
        ("compression_zstd_level", "-131073"),
        ("segment_bytes", "1048575"),
        ("leader_replication_throttled_replicas", "1:2,x"),
        ("message_timestamp_type", "createtime"),
        ("retention_ms", "-2"),
    ],
)
def test_a_wrong_value(name: str, text: str) -> None:
    assert f"for configuration {name.replace('_', '.')}: " in (refusal(DEFAULTS, **{name: text}) or "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compression_gzip_level", "-1"),
        ("leader_replication_throttled_replicas", "*"),
        ("follower_replication_throttled_replicas", "1:2, 3:4"),
        ("leader_replication_throttled_replicas", ""),
        ("cleanup_policy", ""),
        ("retention_bytes", "-5"),
        ("internal_segment_bytes", "100"),
    ],
)
def test_a_value_that_only_looks_wrong(name: str, text: str) -> None:
    assert checked(DEFAULTS, **{name: text}) == {name.replace("_", "."): text}


def test_a_lag_that_ends_before_it_begins() -> None:
    words = "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"

    assert refusal(min_compaction_lag_ms="10", max_compaction_lag_ms="5") == words


def test_a_conflict_with_what_the_broker_has() -> None:
    config = BrokerConfig(topic_defaults={"max.compaction.lag.ms": "5"})

    assert refusal(config, min_compaction_lag_ms="10") is not None
    assert checked(config, min_compaction_lag_ms="5") is not None


def test_there_is_no_tiered_storage() -> None:
    assert "Tiered Storage functionality is disabled" in (refusal(remote_storage_enable="true") or "")


def test_a_broker_does_not_begin_with_wrong_defaults() -> None:
    with pytest.raises(ValueError, match=r"^topic_defaults: Unknown topic config name: nothing$"):
        check_topic_defaults(BrokerConfig(topic_defaults={"nothing": "1"}))


def test_a_topics_own_config_is_above_that_of_its_broker_which_is_above_that_of_all_and_the_files() -> None:
    config = BrokerConfig(topic_defaults={"retention.ms": "4"})
    layers: list[tuple[MetadataImage, dict[str, str]]] = [
        (MetadataImage(), {}),
        (MetadataImage(configs={-1: {"log.retention.ms": "3"}}), {}),
        (MetadataImage(configs={-1: {"log.retention.ms": "3"}, 1: {"log.retention.ms": "2"}}), {}),
        (MetadataImage(configs={-1: {"log.retention.ms": "3"}, 1: {"log.retention.ms": "2"}}), {"retention.ms": "1"}),
    ]

    assert [effective_config(config, image, configs, "retention.ms") for image, configs in layers] == [4, 3, 2, 1]
    assert effective_config(DEFAULTS, MetadataImage(), {}, "retention.ms") == 7 * 24 * 60 * 60 * 1000


def test_a_negative_retention_of_brokers_is_no_limit() -> None:
    image = MetadataImage(configs={-1: {"log.retention.ms": "-77"}})

    assert effective_config(DEFAULTS, image, {}, "retention.ms") == -1


def test_of_brokers_with_configs_of_their_own_the_first_decides_for_the_logs_they_share() -> None:
    image = MetadataImage(configs={2: {"log.retention.ms": "2"}, 1: {}, 3: {"log.retention.ms": "3"}})

    assert effective_config(DEFAULTS, image, {}, "retention.ms") == 2
