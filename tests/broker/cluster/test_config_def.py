"""Texts are read as Java reads them, and refused in Kafka's words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.cluster.config_def import (
    Check,
    ConfigError,
    ConfigKey,
    ConfigType,
    at_least,
    between,
    each_of,
    one_of,
)


def key(type: ConfigType, check: Check | None = None) -> ConfigKey:
    return ConfigKey("some.config", type, None, "", check)


@pytest.mark.parametrize(
    ("type", "text", "value"),
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


@pytest.mark.parametrize(
    ("type", "text"),
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


@pytest.mark.parametrize(
    ("type", "check", "text", "words"),
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


@pytest.mark.parametrize(("type", "check", "text"), [
    (ConfigType.INT, at_least(3), "3"),
    (ConfigType.INT, between(1, 5), "5"),
    (ConfigType.INT, between(None, 5), "-7"),
    (ConfigType.LIST, each_of("a"), "a, a"),
    (ConfigType.LIST, each_of("a"), ""),
])  # fmt: skip
def test_the_ends_of_a_range_are_in_it(type: ConfigType, check: Check, text: str) -> None:
    key(type, check).parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
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
