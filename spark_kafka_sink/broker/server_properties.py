"""Every setting of a broker under Kafka's name, as in server.properties, and the values that topics get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import SASL_MECHANISMS, BrokerConfig
from spark_kafka_sink.broker.cluster.topic_config import (
    TOPIC_CONFIGS,
    Check,
    ConfigError,
    ConfigKey,
    ConfigType,
    TopicConfigKey,
    at_least,
    between,
    check_together,
    each_of,
    one_of,
    parsed,
)
from spark_kafka_sink.broker.kafka_release import NEWEST_TRANSACTION_VERSION
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import nearest
from spark_kafka_sink.protocol.error_codes import ErrorCode


class ConfigSource(IntEnum):
    """The numbers of config sources in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_STRING, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_OURS: Final = object()
_DEFAULTS: Final = BrokerConfig()


def _same(value: Any) -> Any:
    return value


def _overrides(text: str) -> dict[str, int]:
    pairs = [pair.rpartition(":") for pair in text.split(",") if pair.strip()]
    return {host.strip(): int(count) for host, _, count in pairs}


@dataclass(frozen=True, slots=True)
class Setting(ConfigKey):
    """A Kafka setting and its field of BrokerConfig. `default` is Kafka's own.

    `of` converts a parsed value to the field's type, and `shown` converts it back.
    """

    field: str = ""
    of: Callable[[Any], Any] = _same
    shown: Callable[[Any], Any] = _same

    def text_in(self, config: BrokerConfig) -> str | None:
        """Returns the value in a config, as a user writes it."""
        return self.text(self.shown(getattr(config, self.field)))


def _setting(
    name: str,
    type: ConfigType,
    check: Check | None,
    doc: str,
    *,
    kafka: Any = _OURS,
    field: str = "",
    of: Callable[[Any], Any] = _same,
    shown: Callable[[Any], Any] = _same,
) -> Setting:
    """Returns a setting. kafka: Kafka's default if this broker has another. field: its name if it is not Kafka's."""
    field = field or name.replace(".", "_")
    ours = getattr(_DEFAULTS, field)
    if ours is None and of is _same:
        of = lambda value: None if value == "" else value  # noqa: E731
    return Setting(name, type, shown(ours) if kafka is _OURS else kafka, doc, check, field=field, of=of, shown=shown)


_ROWS: Final = (
    _setting("authorizer.class.name", _STRING, one_of("", AUTHORIZER),
             "The authorizer that decides what clients may do: Kafka's StandardAuthorizer, or none."),
    _setting("auto.create.topics.enable", ConfigType.BOOLEAN, None,
             "Whether a topic is created when a client first requests it."),
    _setting("connection.failed.authentication.delay.ms", _INT, None,
             "The delay of the response to a failed login."),
    _setting("connections.max.idle.ms", _LONG, None,
             "The time after which an idle connection is closed."),
    _setting("connections.max.reauth.ms", _LONG, None,
             "The time after which clients must log in again (KIP-368); 0: never."),
    _setting("default.replication.factor", _INT, at_least(1),
             "The replication factor of topics that are created without one."),
    _setting("fetch.max.bytes", _INT, at_least(1024),
             "The maximum size of a Fetch response."),
    _setting("group.initial.rebalance.delay.ms", _INT, at_least(0),
             "The time that a new group waits for more members.",
             kafka=3000),
    _setting("group.max.session.timeout.ms", _INT, None,
             "The maximum session timeout of a group member."),
    _setting("group.max.size", _INT, at_least(1),
             "The maximum number of members of a group."),
    _setting("group.min.session.timeout.ms", _INT, None,
             "The minimum session timeout of a group member."),
    _setting("log.cleaner.backoff.ms", _LONG, at_least(1),
             "The interval between checks for logs to compact."),
    _setting("log.retention.check.interval.ms", _LONG, at_least(1),
             "The interval between checks for segments to delete."),
    _setting("max.connections", _INT, at_least(1),
             "The maximum number of connections."),
    _setting("max.connections.per.ip", _INT, at_least(1),
             "The maximum number of connections from one address."),
    _setting("max.connections.per.ip.overrides", _STRING, None,
             "max.connections.per.ip for single addresses, as address:count.",
             of=_overrides, shown=lambda limits: ",".join(f"{host}:{count}" for host, count in limits.items())),
    _setting("num.io.threads", _INT, at_least(1),
             "The number of threads that serve requests.",
             kafka=8),
    _setting("num.network.threads", _INT, at_least(1),
             "The number of threads that read requests and write responses."),
    _setting("num.partitions", _INT, at_least(1),
             "The number of partitions of topics that are created without one."),
    _setting("offset.metadata.max.bytes", _INT, None,
             "The maximum size of the metadata of a committed offset."),
    _setting("offsets.retention.minutes", _INT, at_least(1),
             "The time that offsets of a group without members are kept.",
             field="offsets_retention_ms", of=lambda minutes: minutes * 60_000, shown=lambda ms: ms // 60_000),
    _setting("offsets.topic.num.partitions", _INT, at_least(1),
             "The number of partitions of the topic for committed offsets.",
             kafka=50),
    _setting("producer.id.expiration.ms", _INT, at_least(1),
             "The time after which a partition forgets an idle producer."),
    _setting("queued.max.requests", _INT, at_least(1),
             "The number of requests that may wait for a thread before reading stops."),
    _setting("sasl.enabled.mechanisms", ConfigType.LIST, each_of(*SASL_MECHANISMS),
             "The mechanisms that clients can log in with.",
             kafka=("GSSAPI",), field="sasl_mechanisms"),
    _setting("socket.request.max.bytes", _INT, at_least(1024),
             "The maximum size of a request."),
    _setting("ssl.client.auth", _STRING, one_of("none", "requested", "required"),
             "Whether clients must present a certificate: none, requested or required."),
    _setting("ssl.enabled.protocols", ConfigType.LIST, each_of("TLSv1.2", "TLSv1.3"),
             "The enabled versions of TLS."),
    _setting("ssl.key.password", ConfigType.PASSWORD, None,
             "The password of the private key."),
    _setting("ssl.keystore.certificate.chain", ConfigType.PASSWORD, None,
             "The broker's certificate chain, as PEM text."),
    _setting("ssl.keystore.key", ConfigType.PASSWORD, None,
             "The broker's private key, as PEM text."),
    _setting("ssl.keystore.location", _STRING, None,
             "A PEM file with the broker's private key and certificate chain."),
    _setting("ssl.principal.mapping.rules", _STRING, None,
             "The rules that map the name in a client's certificate to a principal."),
    _setting("ssl.truststore.certificates", ConfigType.PASSWORD, None,
             "The authorities trusted to sign client certificates, as PEM text."),
    _setting("ssl.truststore.location", _STRING, None,
             "A PEM file with the authorities trusted to sign client certificates."),
    _setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, at_least(1),
             "The interval between checks for transactions that timed out.",
             kafka=10_000),
    _setting("transaction.max.timeout.ms", _INT, at_least(1),
             "The maximum timeout of a transaction."),
    _setting("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, at_least(1),
             "The interval between checks for expired transactional ids."),
    _setting("transaction.state.log.num.partitions", _INT, at_least(1),
             "The number of partitions of the topic for transactions.",
             kafka=50),
    _setting("transactional.id.expiration.ms", _INT, at_least(1),
             "The time that an unused transactional id is kept."),
    _setting("allow.everyone.if.no.acl.found", ConfigType.BOOLEAN, None,
             "Whether every client may use a resource that has no ACL."),
    _setting("super.users", _STRING, None,
             "Principals that may do everything, separated by semicolons.",
             of=lambda text: tuple(user.strip() for user in text.split(";") if user.strip()), shown=";".join),
    _setting("transaction.version", _INT, between(0, NEWEST_TRANSACTION_VERSION),
             "The level of the feature. From 2 on, a producer gets a new epoch in each transaction (KIP-890). Releases before "
             "4.0 do not have the feature.",
             shown=lambda level: NEWEST_TRANSACTION_VERSION if level is None else level),
)  # fmt: skip

SETTINGS: Final[Mapping[str, Setting]] = {setting.name: setting for setting in _ROWS}
"""The settings by Kafka's name. The data folder, the address and the users are not given as text."""

_NOT_DESCRIBED: Final = ("allow.everyone.if.no.acl.found", "super.users", "transaction.version")
"""Kafka sets feature levels when a folder is formatted; the others belong to the authorizer."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A config of a topic or broker with its value, as DescribeConfigs shows it."""

    key: ConfigKey
    text: str | None
    source: ConfigSource


def broker_values(config: BrokerConfig, node_id: int) -> list[ConfigValue]:
    """Returns all configs of a broker, the defaults of topics under the broker's names."""
    ids = [ConfigKey(name, _INT, None, "The id of this broker.") for name in ("broker.id", "node.id")]
    found = [ConfigValue(key, str(node_id), ConfigSource.STATIC_BROKER) for key in ids]
    for setting in _ROWS:
        if setting.name not in _NOT_DESCRIBED:
            text = setting.text_in(config)
            is_default = text == setting.text(setting.default)
            found.append(ConfigValue(setting, text, ConfigSource.DEFAULT if is_default else ConfigSource.STATIC_BROKER))
    for key in TOPIC_CONFIGS.values():
        if key.synonyms:
            value = _topic_value(config, key, {})
            renamed = ConfigKey(key.synonyms[0][0], key.type, key.default, key.doc)
            found.append(ConfigValue(renamed, value.text, value.source))
    return found


def topic_values(config: BrokerConfig, configs: Mapping[str, str]) -> list[ConfigValue]:
    """Returns all configs of a topic. `configs`: those set for it."""
    keys = (key for key in TOPIC_CONFIGS.values() if key.name in configs or not key.is_internal)
    return [_topic_value(config, key, configs) for key in keys]


def _topic_value(config: BrokerConfig, key: TopicConfigKey, configs: Mapping[str, str]) -> ConfigValue:
    for values, source in ((configs, ConfigSource.TOPIC), (config.topic_defaults, ConfigSource.STATIC_BROKER)):
        if key.name in values:
            return ConfigValue(key, key.text(key.parse(values[key.name])), source)
    return ConfigValue(key, key.text(key.default), ConfigSource.DEFAULT)


def effective_configs(config: BrokerConfig, configs: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of all configs of a topic with these `configs`. Raises INVALID_CONFIG."""
    defaults = {name: key.default for name, key in TOPIC_CONFIGS.items()}
    return defaults | parsed({**config.topic_defaults, **configs})


def effective_config(config: BrokerConfig, configs: Mapping[str, str], name: str) -> Any:
    """Returns one of the effective configs. It is called for every batch."""
    key = TOPIC_CONFIGS[name]
    text = configs.get(name, config.topic_defaults.get(name))
    return key.default if text is None else key.parse(text)


def checked_topic_configs(config: BrokerConfig, configs: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the configs to store, as they were written. Raises INVALID_CONFIG (`LogConfig.validate`)."""
    parsed(configs)
    texts = {name: text for name, text in configs.items() if text is not None}
    try:
        check_together(effective_configs(config, texts))
    except ConfigError as error:
        raise ApiException(ErrorCode.INVALID_CONFIG, str(error)) from None
    return texts


def check_topic_defaults(config: BrokerConfig) -> None:
    """Raises ValueError if topics would be created with invalid configs."""
    try:
        checked_topic_configs(config, config.topic_defaults)
    except ApiException as error:
        raise ValueError(f"topic_defaults: {error.message}") from None


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
