"""The settings of a broker, under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spark_kafka_sink.broker.kafka_release import NEWEST_RELEASE, KafkaRelease, kafka_release


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Settings with times in ms and sizes in bytes. Defaults are Kafka's unless a comment says otherwise.

    data_dir: None keeps everything in memory. sasl_users: name to password; if there are any, clients must log in.
    topic_defaults: topic configs (`retention.ms` ...) for topics that do not set them. like: the release of Kafka that clients
    see. transaction_version, inter_broker_protocol_version: default to those of that release. Raises OptionError if the release
    is unknown or does not have a setting.
    """

    like: str = NEWEST_RELEASE
    inter_broker_protocol_version: str | None = field(default=None, compare=False)
    data_dir: Path | None = None
    host: str = "127.0.0.1"  # Kafka listens on every address; this broker is not made for strangers
    num_network_threads: int = 3
    # Kafka: 8. Handlers share one interpreter; they are many enough for one that waits for a disk.
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
    # Kafka: 50 each. Their files are made anew for each test's broker; who leads them is spread well enough by 10.
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
    sasl_mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    # What the three say together: two configs are equal if this is.
    release: KafkaRelease = field(init=False, repr=False)

    def __post_init__(self) -> None:
        release = kafka_release(self.like, self.transaction_version, self.inter_broker_protocol_version)
        object.__setattr__(self, "release", release)
