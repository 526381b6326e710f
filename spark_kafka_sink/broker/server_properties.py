"""The settings of a broker under Kafka's names, as in server.properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.broker_settings import AUTHORIZER, BROKER_CONFIGS, check_topic_defaults
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
from spark_kafka_sink.broker.kafka_release import NEWEST_TRANSACTION_VERSION
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import nearest


def _same(value: Any) -> Any:
    return value


def _overrides(text: str) -> dict[str, int]:
    pairs = [pair.rpartition(":") for pair in text.split(",") if pair.strip()]
    return {host.strip(): int(count) for host, _, count in pairs}


@dataclass(frozen=True, slots=True)
class Setting:
    """A Kafka setting and its field of BrokerConfig. `key` parses the text, `of` converts the value to the field's type, and
    `shown` converts it back.
    """

    key: ConfigKey
    field: str
    of: Callable[[Any], Any] = _same
    shown: Callable[[Any], Any] = _same

    @property
    def default(self) -> str:
        """The default, as a user writes it."""
        return self.key.text(self.shown(getattr(BrokerConfig(), self.field))) or ""


_AT_LEAST_1: Final = (
    "default.replication.factor group.max.size log.cleaner.backoff.ms log.retention.check.interval.ms "
    "max.connections max.connections.per.ip num.io.threads num.network.threads num.partitions "
    "offsets.retention.minutes offsets.topic.num.partitions producer.id.expiration.ms queued.max.requests "
    "transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms "
    "transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.num.partitions "
    "transactional.id.expiration.ms"
)
# Values that have only the limits of their type are not listed here.
_CHECKS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(_AT_LEAST_1.split(), at_least(1)),
    "fetch.max.bytes": at_least(1024),
    "group.initial.rebalance.delay.ms": at_least(0),
    "socket.request.max.bytes": at_least(1024),
    "transaction.version": between(0, NEWEST_TRANSACTION_VERSION),
    "sasl.enabled.mechanisms": each_of(*BrokerConfig().sasl_mechanisms, "OAUTHBEARER"),
    "authorizer.class.name": one_of("", AUTHORIZER),
    "sasl.oauthbearer.clock.skew.seconds": at_least(0),
    "ssl.client.auth": one_of("none", "requested", "required"),
    "ssl.enabled.protocols": each_of("TLSv1.2", "TLSv1.3"),
}
_OTHERS: Final = (
    ConfigKey(
        "transaction.version",
        ConfigType.SHORT,
        NEWEST_TRANSACTION_VERSION,
        "The level of the feature. From 2 on, a producer gets a new epoch in each transaction (KIP-890). Releases before 4.0 "
        "do not have the feature.",
    ),
    ConfigKey(
        "inter.broker.protocol.version",
        ConfigType.STRING,
        None,
        "For releases before 4.0: the version of the protocol between brokers in ZooKeeper mode. Topics have no ids below 2.8.",
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found", ConfigType.BOOLEAN, False, "Whether every client may use a resource that has no ACL."
    ),
    ConfigKey("super.users", ConfigType.STRING, "", "Principals that may do everything, separated by semicolons."),
)
"""Settings that a broker does not describe. Kafka 4 sets feature levels when a folder is formatted and has no ZooKeeper; the last
two belong to the authorizer.
"""

_CONVERTED: Final[Mapping[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "offsets.retention.minutes": ("offsets_retention_ms", lambda minutes: minutes * 60_000, lambda ms: ms // 60_000),
    "max.connections.per.ip.overrides": (
        "max_connections_per_ip_overrides",
        _overrides,
        lambda limits: ",".join(f"{host}:{count}" for host, count in limits.items()),
    ),
    "sasl.enabled.mechanisms": ("sasl_mechanisms", _same, _same),
    "sasl.oauthbearer.expected.audience": ("sasl_oauthbearer_expected_audience", _same, _same),
    "super.users": (
        "super_users",
        lambda text: tuple(user.strip() for user in text.split(";") if user.strip()),
        ";".join,
    ),
    "inter.broker.protocol.version": ("inter_broker_protocol_version", lambda text: text or None, _same),
    "transaction.version": ("transaction_version", _same, lambda level: NEWEST_TRANSACTION_VERSION if level is None else level),
}


def _settings() -> Iterator[Setting]:
    known = {each.name for each in fields(BrokerConfig)}
    for key in (*BROKER_CONFIGS.values(), *_OTHERS):
        checked = ConfigKey(key.name, key.type, key.default, key.doc, _CHECKS.get(key.name, key.check))
        if key.name in _CONVERTED:
            yield Setting(checked, *_CONVERTED[key.name])
        elif (name := key.name.replace(".", "_")) in known:
            yield Setting(checked, name, _same if key.default is not None else lambda value: value or None)


SETTINGS: Final[Mapping[str, Setting]] = {setting.key.name: setting for setting in _settings()}
"""The settings by Kafka's name. The data folder, the address and the users are not given as text."""

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
        return setting.of(setting.key.parse(text))
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
        count = BROKER_CONFIGS[name].parse(text)
    except ConfigError as error:
        raise OptionError(str(error), option=name) from None
    return str(count * unit if count >= 0 else count)
