"""The settings of a broker, under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spark_kafka_sink.broker.acl import Acl, parse_acls
from spark_kafka_sink.broker.client_metrics import ClientMetricsManager
from spark_kafka_sink.broker.kafka_release import NEWEST_RELEASE, KafkaRelease, kafka_release
from spark_kafka_sink.errors import OptionError

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Settings of an embedded broker. Times are in ms, sizes in bytes; defaults are Kafka's unless a comment says otherwise.

    Clients must log in if `sasl_users` is set. Connections are encrypted if `ssl_keystore_*` holds a key in PEM;
    `EmbeddedBroker(tls=True)` creates one. Without an authorizer, every client may do
    everything. Setting `acls` (an empty list counts), `super_users` or `authorizer_class_name` turns the authorizer on.

    Attributes:
        data_dir: the folder for logs and cluster state. None keeps everything in memory.
        topic_defaults: topic configs (`retention.ms` ...) for topics that do not set them.
        like: the Kafka release that clients see.
        transaction_version: the feature level. Defaults to that of the release.
        sasl_users: passwords by user name.
        acls: Acl objects, or arguments of kafka-acls as text.
        super_users: principals such as "User:admin".
        ssl_client_auth: none, requested or required.
        client_metrics: the subscription to metrics of clients and its receiver, since Kafka 3.7. Without one, brokers do not take
            client metrics, as those of Kafka do not without a telemetry receiver.

    Raises:
        OptionError: the release is unknown or does not support a setting, a mechanism is unknown, or an ACL is invalid.
    """

    like: str = NEWEST_RELEASE
    data_dir: Path | None = None
    host: str = "127.0.0.1"  # Kafka listens on every address; this broker must not be reachable from other hosts
    num_network_threads: int = 3
    # Kafka: 8. Handlers share one interpreter, and 4 are enough when one waits for a disk.
    num_io_threads: int = 4
    queued_max_requests: int = 500
    socket_request_max_bytes: int = 100 * 1024 * 1024
    connections_max_idle_ms: int = 10 * 60 * 1000
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    # Kafka: 50 each. Each test's broker creates their files again, and 10 are enough to spread the leaders.
    offsets_topic_num_partitions: int = 10
    transaction_state_log_num_partitions: int = 10
    group_initial_rebalance_delay_ms: int = 0  # Kafka: 3000 to save rebalances of large groups; its own tests set 0 as well
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * 60 * 1000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    transaction_max_timeout_ms: int = 15 * 60 * 1000
    transaction_version: int | None = field(default=None, compare=False)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 1_000  # Kafka: 10 s; a test would wait for it
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 60 * 60 * 1000
    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    log_retention_check_interval_ms: int = 5 * 60 * 1000
    log_cleaner_backoff_ms: int = 15 * 1000
    fetch_max_bytes: int = 55 * 1024 * 1024
    sasl_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    sasl_mechanisms: tuple[str, ...] = SASL_MECHANISMS
    ssl_keystore_location: str | None = None
    ssl_keystore_certificate_chain: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_truststore_location: str | None = None
    ssl_truststore_certificates: str | None = field(default=None, repr=False)
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_principal_mapping_rules: str = "DEFAULT"
    acls: Sequence[Acl | str] | None = None
    super_users: tuple[str, ...] = ()
    authorizer_class_name: str = ""
    allow_everyone_if_no_acl_found: bool = False
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    client_metrics: ClientMetricsManager | None = field(default=None, compare=False, repr=False)
    # Derived from `like` and `transaction_version`. It takes part in comparisons.
    release: KafkaRelease = field(init=False, repr=False)

    def __post_init__(self) -> None:
        release = kafka_release(self.like, self.transaction_version)
        object.__setattr__(self, "release", release)
        for mechanism in self.sasl_mechanisms:
            if mechanism not in SASL_MECHANISMS:
                text = f"sasl_mechanisms: {mechanism} is not supported; use one of {', '.join(SASL_MECHANISMS)}"
                raise OptionError(text, option="sasl_mechanisms")
        self.initial_acls()  # raises here, where the config is written

    @property
    def uses_sasl(self) -> bool:
        """Whether clients must log in."""
        return bool(self.sasl_users)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.ssl_keystore_location is not None or self.ssl_keystore_key is not None

    @property
    def has_authorizer(self) -> bool:
        """Whether clients need ACLs."""
        return self.acls is not None or bool(self.super_users) or bool(self.authorizer_class_name)

    def initial_acls(self) -> tuple[Acl, ...]:
        """Returns the ACLs that exist at the start.

        Raises:
            OptionError: the text of an ACL is not valid.
        """
        given = (parse_acls(acl) if isinstance(acl, str) else [acl] for acl in self.acls or ())
        return tuple(dict.fromkeys(acl for some in given for acl in some))
