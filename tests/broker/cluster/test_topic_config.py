"""How configs are read and checked, and Kafka's topic configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.topic_config import (
    TOPIC_CONFIGS,
    ConfigError,
    ConfigKey,
    ConfigType,
)
from spark_kafka_sink.broker.server_properties import check_topic_defaults, checked_topic_configs
from spark_kafka_sink.protocol.error_codes import ErrorCode

# How texts are read


@given(st.text(), st.sampled_from(ConfigType))
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str, type: ConfigType) -> None:
    config: Any = ConfigKey("some.config", type, None, "", None)
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
    return checked_topic_configs(config, {name.replace("_", "."): text for name, text in configs.items()})


def test_every_default_is_valid() -> None:
    for key in TOPIC_CONFIGS.values():
        text = key.text(key.default)
        assert text is None or key.parse(text) == key.default, key.name


def test_a_conflict_with_what_the_broker_has() -> None:
    config = BrokerConfig(topic_defaults={"max.compaction.lag.ms": "5"})

    assert refusal(config, min_compaction_lag_ms="10") is not None
    assert checked(config, min_compaction_lag_ms="5") is not None


def test_a_broker_does_not_begin_with_wrong_defaults() -> None:
    with pytest.raises(ValueError, match=r"^topic_defaults: Unknown topic config name: nothing$"):
        check_topic_defaults(BrokerConfig(topic_defaults={"nothing": "1"}))
