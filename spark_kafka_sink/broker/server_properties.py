"""The settings of a broker under Kafka's names, as in server.properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import SETTINGS, check_topic_defaults
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS, ConfigError, ConfigKey, ConfigType
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import nearest

TOPIC_SETTINGS: Final[Mapping[str, tuple[str, int]]] = {
    **{name: (key.name, unit) for key in TOPIC_CONFIGS.values() for name, unit in reversed(key.synonyms)},
    **{name: (name, 1) for name in TOPIC_CONFIGS},
}
"""The defaults of topic configs, by `log.*` name and by the topic config's own name: (the topic config, the factor of its unit).
"""


def config_from(settings: Mapping[str, str], **others: Any) -> BrokerConfig:
    """Returns a config made from settings under Kafka's names.

    If one value is set in several units, the finest unit wins, as in Kafka.

    Args:
        settings: text by Kafka's setting name.
        others: other fields of BrokerConfig.

    Raises:
        OptionError: a name is unknown (the error suggests the nearest one), a value is out of range, or the release in `like` is
            unknown.
    """
    for name in settings:
        if name not in SETTINGS and name not in TOPIC_SETTINGS:
            text = f"unknown setting {name}{nearest(name, [*SETTINGS, *TOPIC_SETTINGS])}"
            raise OptionError(text, option=name)
    values = {SETTINGS[name].field: _value(name, text) for name, text in settings.items() if name in SETTINGS}
    config = BrokerConfig(**values, topic_defaults=_topic_defaults(settings), **others)
    try:
        check_topic_defaults(config)
    except ValueError as error:
        raise OptionError(str(error).removeprefix("topic_defaults: ")) from None
    return config


def _value(name: str, text: str) -> Any:
    setting = SETTINGS[name]
    try:
        return setting.of(setting.parse(text))
    except ConfigError as error:
        raise OptionError(str(error), option=name) from None
    except ValueError:
        raise OptionError(f"Invalid value {text} for configuration {name}", option=name) from None


def _topic_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    given = {name: TOPIC_SETTINGS[name] for name in settings if name in TOPIC_SETTINGS and name not in SETTINGS}
    coarsest_first = sorted(given, key=lambda name: -given[name][1])
    return {given[name][0]: _in_unit(name, settings[name], given[name][1]) for name in coarsest_first}


def _in_unit(name: str, text: str, unit: int) -> str:
    if unit == 1:
        return text
    try:
        count = ConfigKey(name, ConfigType.INT, None, "").parse(text)
    except ConfigError as error:
        raise OptionError(str(error), option=name) from None
    return str(count * unit if count >= 0 else count)
