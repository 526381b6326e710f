"""Every broker config under Kafka's name, where each value comes from (DynamicBrokerConfig), and what applies to a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, dropwhile
from typing import Any, Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage, address_text
from spark_kafka_sink.broker.cluster.topic_config import (
    TOPIC_CONFIGS,
    ConfigError,
    ConfigKey,
    ConfigType,
    TopicConfigKey,
    check_together,
    parsed,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

EVERY_BROKER: Final = -1
"""The key in `MetadataImage.configs` of what is set for all brokers."""


class ConfigSource(IntEnum):
    """The numbers that DescribeConfigs has on the wire; the first source that has a value wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigLocation:
    """A place that a config's value could come from. `name`: what the config is called there."""

    name: str
    value: str
    source: ConfigSource


AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_STRING, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_Static = Callable[[BrokerConfig], Any]


def _hidden(secret: str | None) -> str | None:
    return "[hidden]" if secret else None


# Kafka's name, type and default; what this broker has; what it is for.
_STATIC: Final[tuple[tuple[str, ConfigType, Any, _Static, str], ...]] = (
    ("authorizer.class.name", _STRING, "", lambda c: AUTHORIZER if c.has_authorizer else "",
     "What decides about the rights of clients: Kafka's StandardAuthorizer, or nothing."),
    ("auto.create.topics.enable", ConfigType.BOOLEAN, True, lambda c: c.auto_create_topics_enable,
     "Whether topics are made when clients first ask for them."),
    ("connection.failed.authentication.delay.ms", _INT, 100, lambda c: c.connection_failed_authentication_delay_ms,
     "How long the answer to a failed login is held back."),
    ("connections.max.idle.ms", _LONG, 600_000, lambda c: c.connections_max_idle_ms,
     "How long a connection may be idle before it is closed."),
    ("connections.max.reauth.ms", _LONG, 0, lambda c: c.connections_max_reauth_ms,
     "How long a login counts (KIP-368); 0: as long as the connection."),
    ("default.replication.factor", _INT, 1, lambda c: c.default_replication_factor,
     "Replicas of topics that are made without a number of them."),
    ("delete.topic.enable", ConfigType.BOOLEAN, True, lambda c: True,
     "Whether topics can be deleted."),
    ("fetch.max.bytes", _INT, 55 * 1024 * 1024, lambda c: c.fetch_max_bytes,
     "The most bytes in the answer to a fetch."),
    ("group.coordinator.rebalance.protocols", ConfigType.LIST, ("classic", "consumer", "streams"), lambda c: ("classic",),
     "The protocols by which groups rebalance."),
    ("group.initial.rebalance.delay.ms", _INT, 3000, lambda c: c.group_initial_rebalance_delay_ms,
     "How long a new group waits for more members."),
    ("group.max.session.timeout.ms", _INT, 1_800_000, lambda c: c.group_max_session_timeout_ms,
     "The longest session timeout that a member may have."),
    ("group.max.size", _INT, 2**31 - 1, lambda c: c.group_max_size,
     "The most members of a group."),
    ("group.min.session.timeout.ms", _INT, 6000, lambda c: c.group_min_session_timeout_ms,
     "The shortest session timeout that a member may have."),
    ("log.cleaner.backoff.ms", _LONG, 15_000, lambda c: c.log_cleaner_backoff_ms,
     "How often the broker looks for logs to compact."),
    ("log.dirs", _STRING, None, lambda c: None if c.data_dir is None else str(c.data_dir),
     "Where data is kept; in memory where it is not set."),
    ("log.retention.check.interval.ms", _LONG, 300_000, lambda c: c.log_retention_check_interval_ms,
     "How often logs are looked at for what is to be deleted."),
    ("max.connections", _INT, 2**31 - 1, lambda c: c.max_connections,
     "The most connections at a time."),
    ("max.connections.per.ip", _INT, 2**31 - 1, lambda c: c.max_connections_per_ip,
     "The most connections at a time from one address."),
    ("max.connections.per.ip.overrides", _STRING, "",
     lambda c: ",".join(f"{host}:{count}" for host, count in c.max_connections_per_ip_overrides.items()),
     "max.connections.per.ip for single addresses: address:count."),
    ("num.io.threads", _INT, 8, lambda c: c.num_io_threads,
     "Threads that serve requests."),
    ("num.network.threads", _INT, 3, lambda c: c.num_network_threads,
     "Threads that read requests and write answers."),
    ("num.partitions", _INT, 1, lambda c: c.num_partitions,
     "Partitions of topics that are made without a number of them."),
    ("offset.metadata.max.bytes", _INT, 4096, lambda c: c.offset_metadata_max_bytes,
     "The most text that goes with a committed offset."),
    ("offsets.retention.minutes", _INT, 10_080, lambda c: c.offsets_retention_ms // 60_000,
     "How long the offsets of a group without members are kept."),
    ("offsets.topic.num.partitions", _INT, 50, lambda c: c.offsets_topic_num_partitions,
     "Partitions of the topic of committed offsets."),
    ("producer.id.expiration.ms", _INT, 86_400_000, lambda c: c.producer_id_expiration_ms,
     "How long a partition remembers a producer that sends nothing."),
    ("queued.max.requests", _INT, 500, lambda c: c.queued_max_requests,
     "Requests that may wait for a thread before reading stops."),
    ("sasl.enabled.mechanisms", ConfigType.LIST, ("GSSAPI",), lambda c: tuple(c.sasl_mechanisms),
     "The ways in which clients can log in."),
    ("sasl.jaas.config", ConfigType.PASSWORD, None, lambda c: "[hidden]" if c.sasl_users else None,
     "Users and passwords."),
    ("sasl.oauthbearer.clock.skew.seconds", _INT, 30, lambda c: c.sasl_oauthbearer_clock_skew_seconds,
     "How far the token issuer's clock may differ, in seconds."),
    ("sasl.oauthbearer.expected.audience", ConfigType.LIST, None, lambda c: c.sasl_oauthbearer_expected_audience or None,
     "Tokens must be for one of these."),
    ("sasl.oauthbearer.expected.issuer", _STRING, None, lambda c: c.sasl_oauthbearer_expected_issuer,
     "Tokens must be from this issuer."),
    ("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, lambda c: c.sasl_oauthbearer_jwks_endpoint_url,
     "Where the keys of tokens are: a file: URL of a JWKS."),
    ("sasl.oauthbearer.scope.claim.name", _STRING, "scope", lambda c: c.sasl_oauthbearer_scope_claim_name,
     "The claim of a token that has its scopes."),
    ("sasl.oauthbearer.sub.claim.name", _STRING, "sub", lambda c: c.sasl_oauthbearer_sub_claim_name,
     "The claim of a token that has the name of the user."),
    ("socket.request.max.bytes", _INT, 100 * 1024 * 1024, lambda c: c.socket_request_max_bytes,
     "The largest request that is read."),
    ("ssl.client.auth", _STRING, "none", lambda c: c.ssl_client_auth,
     "Whether clients must show a certificate: none, requested or required."),
    ("ssl.enabled.protocols", ConfigType.LIST, ("TLSv1.2", "TLSv1.3"), lambda c: tuple(c.ssl_enabled_protocols),
     "The versions of TLS that are spoken."),
    ("ssl.key.password", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_key_password),
     "The password of the private key."),
    ("ssl.keystore.certificate.chain", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_keystore_certificate_chain),
     "The broker's certificate and those that signed it, as PEM text."),
    ("ssl.keystore.key", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_keystore_key),
     "The broker's private key, as PEM text."),
    ("ssl.keystore.location", _STRING, None, lambda c: c.ssl_keystore_location,
     "A PEM file with the broker's private key and its certificates."),
    ("ssl.principal.mapping.rules", _STRING, "DEFAULT", lambda c: c.ssl_principal_mapping_rules,
     "How the name in a client's certificate becomes a principal."),
    ("ssl.truststore.certificates", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_truststore_certificates),
     "The authorities that may have signed clients' certificates, as PEM text."),
    ("ssl.truststore.location", _STRING, None, lambda c: c.ssl_truststore_location,
     "A PEM file with the authorities that may have signed clients' certificates."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000,
     lambda c: c.transaction_abort_timed_out_transaction_cleanup_interval_ms,
     "How often transactions are looked at for those that timed out."),
    ("transaction.max.timeout.ms", _INT, 900_000, lambda c: c.transaction_max_timeout_ms,
     "The longest timeout that a transaction may have."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000,
     lambda c: c.transaction_remove_expired_transaction_cleanup_interval_ms,
     "How often transactional ids are looked at for those that are not used any more."),
    ("transaction.state.log.num.partitions", _INT, 50, lambda c: c.transaction_state_log_num_partitions,
     "Partitions of the topic of transactions."),
    ("transactional.id.expiration.ms", _INT, 604_800_000, lambda c: c.transactional_id_expiration_ms,
     "How long a transactional id that is not used is kept."),
)  # fmt: skip
# Of one broker each; Kafka's defaults.
_NODE: Final = (
    ConfigKey("advertised.listeners", _STRING, None, "Where clients find this broker."),
    ConfigKey("broker.id", _INT, -1, "The id of this broker."),
    ConfigKey("node.id", _INT, None, "The id of this broker."),
    ConfigKey("broker.rack", _STRING, None, "The rack of this broker."),
)


def _behind(topic_key: TopicConfigKey) -> list[ConfigKey]:
    """Returns the broker configs behind a topic config. Kafka has no default for the first if a coarser unit has one."""
    first, *coarser = topic_key.synonyms
    # A negative log.retention.ms is taken for -1 (KafkaConfig.logRetentionTimeMillis), so it is not refused.
    check = None if first[0] == "log.retention.ms" else topic_key.check
    keys = [ConfigKey(first[0], topic_key.type, None if coarser else topic_key.default, topic_key.doc, check)]
    for name, unit_ms in coarser:
        default = None if name == "log.retention.minutes" else topic_key.default // unit_ms
        type_ = topic_key.type if unit_ms == 1 else _INT
        keys.append(ConfigKey(name, type_, default, f"{first[0]}, in another unit.", topic_key.check))
    return keys


BROKER_CONFIGS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in chain(
        (ConfigKey(name, type_, default, doc) for name, type_, default, _, doc in _STATIC),
        _NODE,
        chain.from_iterable(_behind(key) for key in TOPIC_CONFIGS.values() if key.synonyms),
    )
}
"""By name."""

DYNAMIC_CONFIGS: Final = frozenset(key.broker_name for key in TOPIC_CONFIGS.values() if key.synonyms)
"""The configs that can be altered while the broker runs."""

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    name: names for key in TOPIC_CONFIGS.values() for names in [tuple(name for name, _ in key.synonyms)] for name in names
}
"""The names of one setting in several units; the first one wins (`DynamicBrokerConfig.brokerConfigSynonyms`)."""


class BrokerSettings:
    """All settings of one broker at one moment."""

    def __init__(self, config: BrokerConfig, image: MetadataImage, node_id: int) -> None:
        own, everyone = image.configs.get(node_id, {}), image.configs.get(EVERY_BROKER, {})
        self._layers: tuple[tuple[Mapping[str, str], ConfigSource], ...] = (
            (own, ConfigSource.DYNAMIC_BROKER),
            (everyone, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (_static(config, image, node_id), ConfigSource.STATIC_BROKER),
            (_DEFAULTS, ConfigSource.DEFAULT),
        )

    def names(self) -> set[str]:
        """Returns the names in the table and all others that were set: a broker accepts any name, for its plugins."""
        return set(BROKER_CONFIGS).union(*(values for values, source in self._layers if source is not ConfigSource.DEFAULT))

    def locations(self, name: str) -> list[ConfigLocation]:
        """Returns where its value comes from, then where it would come from instead (`ConfigHelper.configSynonyms`)."""
        every = [
            ConfigLocation(synonym, values[synonym], source)
            for values, source in self._layers
            for synonym in SYNONYMS.get(name, (name,))
            if synonym in values
        ]
        return list(dropwhile(lambda location: location.name != name, every))

    def topic_locations(self, key: TopicConfigKey, configs: Mapping[str, str]) -> list[ConfigLocation]:
        """Returns where the value of a topic's config comes from; `configs` were set for the topic."""
        below = self.locations(key.broker_name)
        if key.name not in configs:
            return below
        text = key.text(key.parse(configs[key.name]))
        return [ConfigLocation(key.name, text or "", ConfigSource.TOPIC), *below]

    def text(self, name: str) -> str | None:
        """Returns the value of one config; None if it has none."""
        return next((values[name] for values, _ in self._layers if name in values), None)


def _static(config: BrokerConfig, image: MetadataImage, node_id: int) -> dict[str, str]:
    """Returns what a server.properties would have: the values that differ from Kafka's defaults."""
    values = {name: of(config) for name, _, default, of, _ in _STATIC if of(config) != default}
    texts = {name: BROKER_CONFIGS[name].text(value) for name, value in values.items()}
    for name, value in config.topic_defaults.items():
        texts[TOPIC_CONFIGS[name].broker_name] = value
    broker = image.brokers.get(node_id)
    if broker is not None:
        listeners = ",".join(f"{name}://{address_text(*address)}" for name, address in broker.advertised.items())
        node = str(node_id)
        texts |= {"broker.id": node, "node.id": node, "broker.rack": broker.rack, "advertised.listeners": listeners}
    return {name: text for name, text in texts.items() if text is not None}


_DEFAULTS: Final[Mapping[str, str]] = {
    name: text for name, key in BROKER_CONFIGS.items() if (text := key.text(key.default)) is not None
}


def topic_values(config: BrokerConfig, image: MetadataImage, node_id: int, configs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every topic config's value on a broker: that of the parsed `configs`, otherwise the broker's."""
    return {
        name: configs[name] if name in configs else inherited(config, image, node_id, key) for name, key in TOPIC_CONFIGS.items()
    }


def inherited(config: BrokerConfig, image: MetadataImage, node_id: int, key: TopicConfigKey) -> Any:
    """Returns the value for a topic that does not set it."""
    name = key.broker_name
    for configs in (image.configs.get(node_id, {}), image.configs.get(EVERY_BROKER, {})):
        if name in configs:
            value = BROKER_CONFIGS[name].parse(configs[name])
            return max(value, -1) if key.name == "retention.ms" else value
    static = config.topic_defaults.get(key.name)
    return key.default if static is None else key.parse(static)


def check_dynamic(config: BrokerConfig, image: MetadataImage, node_id: int, configs: Mapping[str, str]) -> None:
    """Raises ConfigError if a broker cannot take `configs` while it runs (`DynamicBrokerConfig.validate`)."""
    fixed = [name for name in configs if name in BROKER_CONFIGS and name not in DYNAMIC_CONFIGS]
    if fixed:
        kind = "Set" if len(fixed) < 5 else "HashSet"  # as Scala writes them
        raise ConfigError(f"Cannot update these configs dynamically: {kind}({', '.join(fixed)})")
    for name, text in configs.items():
        if name in BROKER_CONFIGS:
            BROKER_CONFIGS[name].parse(text)
    changed = MetadataImage(brokers=image.brokers, configs={**image.configs, node_id: configs})
    check_together(topic_values(config, changed, node_id, {}))


def effective_configs(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str]) -> dict[str, Any]:
    """Returns every config's value of a topic for which `configs` were set. Raises INVALID_CONFIG."""
    return topic_values(config, image, _deciding_broker(image), parsed(configs))


def effective_config(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str], name: str) -> Any:
    """Returns one of the effective configs; it is asked for with every batch."""
    key = TOPIC_CONFIGS[name]
    return key.parse(configs[name]) if name in configs else inherited(config, image, _deciding_broker(image), key)


def checked_topic_configs(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the configs to keep, as they were written. Raises INVALID_CONFIG (`LogConfig.validate`)."""
    values = parsed(configs)
    try:
        check_together(topic_values(config, image, _deciding_broker(image), values))
    except ConfigError as error:
        raise ApiException(ErrorCode.INVALID_CONFIG, str(error)) from None
    return {name: text for name, text in configs.items() if text is not None}


def check_topic_defaults(config: BrokerConfig) -> None:
    """Raises ValueError if topics would be created with invalid configs."""
    try:
        checked_topic_configs(config, MetadataImage(), config.topic_defaults)
    except ApiException as error:
        raise ValueError(f"topic_defaults: {error.message}") from None


def _deciding_broker(image: MetadataImage) -> int:
    """Returns the first broker with configs of its own: a log exists once, whichever broker leads it."""
    return min((node for node, configs in image.configs.items() if configs and node != EVERY_BROKER), default=EVERY_BROKER)
