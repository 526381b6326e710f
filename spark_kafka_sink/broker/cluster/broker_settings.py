"""Every broker config under Kafka's name, the source of each value (DynamicBrokerConfig), and the values for topics."""

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
"""The key in `MetadataImage.configs` of settings for all brokers."""


class ConfigSource(IntEnum):
    """The numbers of config sources in DescribeConfigs. The first source that has a value wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigLocation:
    """A possible source of a config's value. `name`: the config's name in that source."""

    name: str
    value: str
    source: ConfigSource


AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_STRING, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_Static = Callable[[BrokerConfig], Any]


def _hidden(secret: str | None) -> str | None:
    return "[hidden]" if secret else None


# Kafka's name, type and default; this broker's value; the description.
_STATIC: Final[tuple[tuple[str, ConfigType, Any, _Static, str], ...]] = (
    ("authorizer.class.name", _STRING, "", lambda c: AUTHORIZER if c.has_authorizer else "",
     "The authorizer that decides what clients may do: Kafka's StandardAuthorizer, or none."),
    ("auto.create.topics.enable", ConfigType.BOOLEAN, True, lambda c: c.auto_create_topics_enable,
     "Whether a topic is created when a client first requests it."),
    ("connection.failed.authentication.delay.ms", _INT, 100, lambda c: c.connection_failed_authentication_delay_ms,
     "The delay of the response to a failed login."),
    ("connections.max.idle.ms", _LONG, 600_000, lambda c: c.connections_max_idle_ms,
     "The time after which an idle connection is closed."),
    ("connections.max.reauth.ms", _LONG, 0, lambda c: c.connections_max_reauth_ms,
     "The time after which clients must log in again (KIP-368); 0: never."),
    ("default.replication.factor", _INT, 1, lambda c: c.default_replication_factor,
     "The replication factor of topics that are created without one."),
    ("delete.topic.enable", ConfigType.BOOLEAN, True, lambda c: True,
     "Whether topics can be deleted."),
    ("fetch.max.bytes", _INT, 55 * 1024 * 1024, lambda c: c.fetch_max_bytes,
     "The maximum size of a Fetch response."),
    ("group.coordinator.rebalance.protocols", ConfigType.LIST, ("classic", "consumer", "streams"), lambda c: ("classic",),
     "The group rebalance protocols."),
    ("group.initial.rebalance.delay.ms", _INT, 3000, lambda c: c.group_initial_rebalance_delay_ms,
     "The time that a new group waits for more members."),
    ("group.max.session.timeout.ms", _INT, 1_800_000, lambda c: c.group_max_session_timeout_ms,
     "The maximum session timeout of a group member."),
    ("group.max.size", _INT, 2**31 - 1, lambda c: c.group_max_size,
     "The maximum number of members of a group."),
    ("group.min.session.timeout.ms", _INT, 6000, lambda c: c.group_min_session_timeout_ms,
     "The minimum session timeout of a group member."),
    ("log.cleaner.backoff.ms", _LONG, 15_000, lambda c: c.log_cleaner_backoff_ms,
     "The interval between checks for logs to compact."),
    ("log.dirs", _STRING, None, lambda c: None if c.data_dir is None else str(c.data_dir),
     "The folder for data; without it, data is kept in memory."),
    ("log.retention.check.interval.ms", _LONG, 300_000, lambda c: c.log_retention_check_interval_ms,
     "The interval between checks for segments to delete."),
    ("max.connections", _INT, 2**31 - 1, lambda c: c.max_connections,
     "The maximum number of connections."),
    ("max.connections.per.ip", _INT, 2**31 - 1, lambda c: c.max_connections_per_ip,
     "The maximum number of connections from one address."),
    ("max.connections.per.ip.overrides", _STRING, "",
     lambda c: ",".join(f"{host}:{count}" for host, count in c.max_connections_per_ip_overrides.items()),
     "max.connections.per.ip for single addresses, as address:count."),
    ("num.io.threads", _INT, 8, lambda c: c.num_io_threads,
     "The number of threads that serve requests."),
    ("num.network.threads", _INT, 3, lambda c: c.num_network_threads,
     "The number of threads that read requests and write responses."),
    ("num.partitions", _INT, 1, lambda c: c.num_partitions,
     "The number of partitions of topics that are created without one."),
    ("offset.metadata.max.bytes", _INT, 4096, lambda c: c.offset_metadata_max_bytes,
     "The maximum size of the metadata of a committed offset."),
    ("offsets.retention.minutes", _INT, 10_080, lambda c: c.offsets_retention_ms // 60_000,
     "The time that offsets of a group without members are kept."),
    ("offsets.topic.num.partitions", _INT, 50, lambda c: c.offsets_topic_num_partitions,
     "The number of partitions of the topic for committed offsets."),
    ("producer.id.expiration.ms", _INT, 86_400_000, lambda c: c.producer_id_expiration_ms,
     "The time after which a partition forgets an idle producer."),
    ("queued.max.requests", _INT, 500, lambda c: c.queued_max_requests,
     "The number of requests that may wait for a thread before reading stops."),
    ("sasl.enabled.mechanisms", ConfigType.LIST, ("GSSAPI",), lambda c: tuple(c.sasl_mechanisms),
     "The mechanisms that clients can log in with."),
    ("sasl.jaas.config", ConfigType.PASSWORD, None, lambda c: "[hidden]" if c.sasl_users else None,
     "Users and passwords."),
    ("sasl.oauthbearer.clock.skew.seconds", _INT, 30, lambda c: c.sasl_oauthbearer_clock_skew_seconds,
     "The allowed clock difference to the token issuer, in seconds."),
    ("sasl.oauthbearer.expected.audience", ConfigType.LIST, None, lambda c: c.sasl_oauthbearer_expected_audience or None,
     "The accepted audiences of a token."),
    ("sasl.oauthbearer.expected.issuer", _STRING, None, lambda c: c.sasl_oauthbearer_expected_issuer,
     "The accepted issuer of a token."),
    ("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, lambda c: c.sasl_oauthbearer_jwks_endpoint_url,
     "The keys that verify tokens: a file: URL of a JWKS."),
    ("sasl.oauthbearer.scope.claim.name", _STRING, "scope", lambda c: c.sasl_oauthbearer_scope_claim_name,
     "The claim of a token that contains its scopes."),
    ("sasl.oauthbearer.sub.claim.name", _STRING, "sub", lambda c: c.sasl_oauthbearer_sub_claim_name,
     "The claim of a token that contains the user's name."),
    ("socket.request.max.bytes", _INT, 100 * 1024 * 1024, lambda c: c.socket_request_max_bytes,
     "The maximum size of a request."),
    ("ssl.client.auth", _STRING, "none", lambda c: c.ssl_client_auth,
     "Whether clients must present a certificate: none, requested or required."),
    ("ssl.enabled.protocols", ConfigType.LIST, ("TLSv1.2", "TLSv1.3"), lambda c: tuple(c.ssl_enabled_protocols),
     "The enabled versions of TLS."),
    ("ssl.key.password", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_key_password),
     "The password of the private key."),
    ("ssl.keystore.certificate.chain", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_keystore_certificate_chain),
     "The broker's certificate chain, as PEM text."),
    ("ssl.keystore.key", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_keystore_key),
     "The broker's private key, as PEM text."),
    ("ssl.keystore.location", _STRING, None, lambda c: c.ssl_keystore_location,
     "A PEM file with the broker's private key and certificate chain."),
    ("ssl.principal.mapping.rules", _STRING, "DEFAULT", lambda c: c.ssl_principal_mapping_rules,
     "The rules that map the name in a client's certificate to a principal."),
    ("ssl.truststore.certificates", ConfigType.PASSWORD, None, lambda c: _hidden(c.ssl_truststore_certificates),
     "The authorities trusted to sign client certificates, as PEM text."),
    ("ssl.truststore.location", _STRING, None, lambda c: c.ssl_truststore_location,
     "A PEM file with the authorities trusted to sign client certificates."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000,
     lambda c: c.transaction_abort_timed_out_transaction_cleanup_interval_ms,
     "The interval between checks for transactions that timed out."),
    ("transaction.max.timeout.ms", _INT, 900_000, lambda c: c.transaction_max_timeout_ms,
     "The maximum timeout of a transaction."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000,
     lambda c: c.transaction_remove_expired_transaction_cleanup_interval_ms,
     "The interval between checks for expired transactional ids."),
    ("transaction.state.log.num.partitions", _INT, 50, lambda c: c.transaction_state_log_num_partitions,
     "The number of partitions of the topic for transactions."),
    ("transactional.id.expiration.ms", _INT, 604_800_000, lambda c: c.transactional_id_expiration_ms,
     "The time that an unused transactional id is kept."),
)  # fmt: skip
# Settings of single brokers, with Kafka's defaults.
_NODE: Final = (
    ConfigKey("advertised.listeners", _STRING, None, "The address that clients use for this broker."),
    ConfigKey("broker.id", _INT, -1, "The id of this broker."),
    ConfigKey("node.id", _INT, None, "The id of this broker."),
    ConfigKey("broker.rack", _STRING, None, "The rack of this broker."),
)


def _behind(topic_key: TopicConfigKey) -> list[ConfigKey]:
    """Returns the broker configs behind a topic config. Kafka has no default for the first if a coarser unit has one."""
    first, *coarser = topic_key.synonyms
    # A negative log.retention.ms means -1 (KafkaConfig.logRetentionTimeMillis), so it is accepted.
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
"""The configs by name."""

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
        """Returns the source of a config's value, then the sources that it overrides (`ConfigHelper.configSynonyms`)."""
        every = [
            ConfigLocation(synonym, values[synonym], source)
            for values, source in self._layers
            for synonym in SYNONYMS.get(name, (name,))
            if synonym in values
        ]
        return list(dropwhile(lambda location: location.name != name, every))

    def topic_locations(self, key: TopicConfigKey, configs: Mapping[str, str]) -> list[ConfigLocation]:
        """Returns the sources of a topic config's value. `configs`: those set for the topic."""
        below = self.locations(key.broker_name)
        if key.name not in configs:
            return below
        text = key.text(key.parse(configs[key.name]))
        return [ConfigLocation(key.name, text or "", ConfigSource.TOPIC), *below]

    def text(self, name: str) -> str | None:
        """Returns the value of one config; None if it has none."""
        return next((values[name] for values, _ in self._layers if name in values), None)


def _static(config: BrokerConfig, image: MetadataImage, node_id: int) -> dict[str, str]:
    """Returns the equivalent of server.properties: the values that differ from Kafka's defaults."""
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
    """Returns the values of all topic configs on a broker: those in the parsed `configs`, and the broker's for the rest."""
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
    """Raises ConfigError if a running broker does not accept `configs` (`DynamicBrokerConfig.validate`)."""
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
    """Returns the values of all configs of a topic with these `configs`. Raises INVALID_CONFIG."""
    return topic_values(config, image, _deciding_broker(image), parsed(configs))


def effective_config(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str], name: str) -> Any:
    """Returns one of the effective configs. It is called for every batch."""
    key = TOPIC_CONFIGS[name]
    return key.parse(configs[name]) if name in configs else inherited(config, image, _deciding_broker(image), key)


def checked_topic_configs(config: BrokerConfig, image: MetadataImage, configs: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the configs to store, as they were written. Raises INVALID_CONFIG (`LogConfig.validate`)."""
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
    """Returns the first broker that has configs: a log exists once, whichever broker leads it."""
    return min((node for node, configs in image.configs.items() if configs and node != EVERY_BROKER), default=EVERY_BROKER)
