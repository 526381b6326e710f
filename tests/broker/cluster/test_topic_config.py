"""How configs are read and checked, and Kafka's topic configs."""

from __future__ import annotations

import math
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
    at_least,
    between,
    each_of,
    one_of,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.every import every

# How texts are read


def key(type: ConfigType, check: Check | None = None) -> ConfigKey:
    return ConfigKey("some.config", type, None, "", check)


@every(
    "type, text, value",
    [
        (ConfigType.INT, " 5 ", 5),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.INT, "000000000000000000000000012", 12),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, "\tfalse\n", False),
        (ConfigType.STRING, " lz4", "lz4"),
        (ConfigType.STRING, "", ""),
        (ConfigType.LIST, "compact , delete", ("compact", "delete")),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, ",a,", ("", "a", "")),
        (ConfigType.DOUBLE, "1e-3", 0.001),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "0.5f", 0.5),
        (ConfigType.DOUBLE, "3d", 3.0),
        (ConfigType.DOUBLE, "0x1p-1", 0.5),
        (ConfigType.DOUBLE, "-Infinity", -math.inf),
        (ConfigType.PASSWORD, " secret ", "secret"),
    ],
)
def test_a_text_of_its_type(type: ConfigType, text: str, value: object) -> None:
    assert key(type).parse(text) == value


def test_not_a_number_is_a_double() -> None:
    assert math.isnan(key(ConfigType.DOUBLE).parse("NaN"))


@every(
    "type, text",
    [
        *((ConfigType.INT, text) for text in ("", "x", "1.5", "1e6", "2147483648", "1_000", "5 5", "--5", "0x10", "9" * 5000)),
        *((ConfigType.LONG, text) for text in ("9223372036854775808", "99999999999999999999", "-9223372036854775809")),
        *((ConfigType.SHORT, text) for text in ("32768",)),
        *((ConfigType.DOUBLE, text) for text in ("", "a", "nan", "inf", "1_0.5", "0x1", "++NaN", "1e", "1.5ff")),
    ],
)
def test_a_text_that_is_no_number(type: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        key(type).parse(text)

    assert str(refused.value) == f"Invalid value {text} for configuration some.config: Not a number of type {type.name}"


@pytest.mark.parametrize("text", ["yes", "1", "", "truee"])
def test_a_text_that_is_neither_true_nor_false(text: str) -> None:
    with pytest.raises(ConfigError, match=r": Expected value to be either true or false$"):
        key(ConfigType.BOOLEAN).parse(text)


@every(
    "type, check, text, words",
    [
        (ConfigType.INT, at_least(3), " 2", "Invalid value 2 for configuration some.config: Value must be at least 3"),
        (ConfigType.LONG, at_least(-1), "-2", "Invalid value -2 for configuration some.config: Value must be at least -1"),
        (ConfigType.INT, between(1, 5), "6", "Invalid value 6 for configuration some.config: Value must be no more than 5"),
        (
            ConfigType.DOUBLE,
            between(0, 1),
            "-1e-5",
            "Invalid value -1.0E-5 for configuration some.config: Value must be at least 0",
        ),
        (ConfigType.STRING, one_of("a", "b"), "A", "Invalid value A for configuration some.config: String must be one of: a, b"),
        (ConfigType.LIST, each_of("a", "b"), "a,c", "Invalid value c for configuration some.config: String must be one of: a, b"),
    ],
)
def test_a_value_out_of_its_range(type: ConfigType, check: Check, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        key(type, check).parse(text)

    assert str(refused.value) == words


@every(
    "type, check, text",
    [
    (ConfigType.INT, at_least(3), "3"),
    (ConfigType.INT, between(1, 5), "5"),
    (ConfigType.INT, between(None, 5), "-7"),
    (ConfigType.LIST, each_of("a"), "a, a"),
    (ConfigType.LIST, each_of("a"), ""),
],
)  # fmt: skip
def test_the_ends_of_a_range_are_in_it(type: ConfigType, check: Check, text: str) -> None:
    key(type, check).parse(text)


@every(
    "value, text",
    [
        (None, None),
        (True, "true"),
        (5, "5"),
        ("x", "x"),
        ((), ""),
        (("a", "b"), "a,b"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.5, "1.234567895E8"),
        (-1.25e-5, "-1.25E-5"),
        (5e-324, "5.0E-324"),  # Java before 19 wrote 4.9E-324
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        (-0.0, "-0.0"),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str | None) -> None:
    assert key(ConfigType.STRING).text(value) == text


@given(st.floats(allow_nan=False))
@settings(deadline=None)
def test_a_double_that_was_written_is_read_back(value: float) -> None:
    double = key(ConfigType.DOUBLE)
    written = double.text(value)

    assert written is not None
    assert double.parse(written) == value


@given(st.text(), st.sampled_from(ConfigType))
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str, type: ConfigType) -> None:
    config: Any = key(type)
    try:
        value = config.parse(text)
    except ConfigError:
        return
    assert config.text(value) is not None


def test_only_a_password_is_a_secret() -> None:
    assert [type for type in ConfigType if key(type).is_sensitive] == [ConfigType.PASSWORD]


# The configs of topics


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


@every(
    "name",
    ["message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms", "Retention.ms", ""],
)
def test_what_kafka_4_has_no_more_is_unknown(name: str) -> None:
    with pytest.raises(ApiException, match="Unknown topic config name"):
        checked_topic_configs(DEFAULTS, MetadataImage(), {name: "1"})


@every(
    "name, text",
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


@every(
    "name, text",
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
