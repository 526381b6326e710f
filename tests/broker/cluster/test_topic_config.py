"""How configs are read and checked, and Kafka's topic configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import check_topic_defaults, checked_topic_configs, effective_config
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.cluster.topic_config import (
    TOPIC_CONFIGS,
    Check,
    ConfigError,
    ConfigKey,
    ConfigType,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

# How texts are read


def key(type: ConfigType, check: Check | None = None) -> ConfigKey:
    return ConfigKey("some.config", type, None, "", check)


@given(st.text(), st.sampled_from(ConfigType))
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str, type: ConfigType) -> None:
    config: Any = key(type)
    try:
        value = config.parse(text)
    except ConfigError:
        return
    assert config.text(value) is not None


# The configs of topics


DEFAULTS = BrokerConfig()


def refusal(config: BrokerConfig = DEFAULTS, **configs: str | None) -> str | None:
    with pytest.raises(ApiException) as refused:
        checked(config, **configs)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


def checked(config: BrokerConfig = DEFAULTS, **configs: str | None) -> dict[str, str]:
    return checked_topic_configs(config, MetadataImage(), {name.replace("_", "."): text for name, text in configs.items()})


def test_every_default_is_valid() -> None:
    for key in TOPIC_CONFIGS.values():
        text = key.text(key.default)
        assert text is None or key.parse(text) == key.default, key.name


def test_every_config_says_what_it_does() -> None:
    assert all(key.doc.endswith(".") for key in TOPIC_CONFIGS.values())


def test_a_conflict_with_what_the_broker_has() -> None:
    config = BrokerConfig(topic_defaults={"max.compaction.lag.ms": "5"})

    assert refusal(config, min_compaction_lag_ms="10") is not None
    assert checked(config, min_compaction_lag_ms="5") is not None


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


def test_of_brokers_with_configs_of_their_own_the_first_decides_for_the_logs_they_share() -> None:
    image = MetadataImage(configs={2: {"log.retention.ms": "2"}, 1: {}, 3: {"log.retention.ms": "3"}})

    assert effective_config(DEFAULTS, image, {}, "retention.ms") == 2
