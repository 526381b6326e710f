"""The visible features of each Kafka release: features, checks and API versions, and the ApiVersions response about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import nearest
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode

RELEASES: Final = (
    *(f"2.{minor}" for minor in range(1, 9)),
    *(f"3.{minor}" for minor in range(10)),
    *("4.0", "4.1"),
)
"""The supported values of `like`, oldest first."""

NEWEST_RELEASE: Final = RELEASES[-1]
NEWEST_TRANSACTION_VERSION: Final = 2

_METADATA_VERSIONS: Final[Mapping[str, tuple[int, int]]] = {
    "3.3": (1, 7),
    "3.4": (1, 8),
    "3.5": (1, 11),
    "3.6": (1, 14),
    "3.7": (1, 19),
    "3.8": (1, 20),
    "3.9": (1, 21),
    "4.0": (7, 25),
    "4.1": (7, 27),
}
"""The levels of `metadata.version`: (oldest supported, default). Releases without an entry run with ZooKeeper."""


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """The part of a Kafka release and its settings that clients can see. Immutable.

    metadata_versions: the supported levels of `metadata.version`, the last one finalized; None with ZooKeeper, which has no
    features. transaction_version: the finalized level of `transaction.version`; 0 where the feature does not exist.
    inter_broker_protocol: the protocol between brokers with ZooKeeper.
    """

    name: str
    metadata_versions: tuple[int, int] | None
    transaction_version: int
    inter_broker_protocol: tuple[int, int]

    @property
    def has_zookeeper(self) -> bool:
        """Whether a broker that is not the controller refuses to create and delete topics."""
        return self.metadata_versions is None

    @property
    def has_transaction_versions(self) -> bool:
        """Whether `transaction.version` is a feature of this release."""
        return _number(self.name) >= (4, 0)

    @property
    def has_default_counts(self) -> bool:
        """Whether clients can create topics with the default number of partitions and replicas (KIP-464)."""
        return _number(self.name) >= (2, 4)

    @property
    def names_api_versions(self) -> bool:
        """Whether a broker that does not know a version of ApiVersions says which ones it knows (KIP-511)."""
        return _number(self.name) >= (2, 4)

    @property
    def has_topic_ids(self) -> bool:
        return self.inter_broker_protocol >= (2, 8)

    @property
    def features_epoch(self) -> int:
        """The epoch of the finalized features in ApiVersions; -1: there are none."""
        if not self.has_zookeeper:
            return 1  # features do not change while a broker runs, so any non-negative number is right
        return 0 if self.inter_broker_protocol >= (2, 7) else -1

    def verifies_transactions(self, *, of_offsets: bool) -> bool:
        """Whether brokers ask the coordinator before they store the first record of a transaction (KIP-890).

        They do since 3.6 for partitions, and since 3.7 for the offsets of groups.
        """
        return _number(self.name) >= ((3, 7) if of_offsets else (3, 6))


def kafka_release(name: str, transaction_version: int | None, inter_broker_protocol_version: str | None) -> KafkaRelease:
    """Returns the Kafka release `name`, such as "3.7", with these settings.

    Args:
        name: the release, one of `RELEASES`.
        transaction_version: the level of the feature `transaction.version`. None: the release's default.
        inter_broker_protocol_version: Kafka's setting of that name. A release that is given one runs with ZooKeeper, because
            Kafka ignores the setting otherwise. None: the release's own.

    Raises:
        OptionError: the release is unknown or does not have the setting.
    """
    if name not in RELEASES:
        raise OptionError(
            f"like={name!r} is not a known Kafka release; it must be one of {', '.join(RELEASES)}{nearest(name, RELEASES)}",
            option="like",
        )
    protocol = _protocol(name, inter_broker_protocol_version)
    metadata_versions = _METADATA_VERSIONS.get(name) if inter_broker_protocol_version is None else None
    return KafkaRelease(name, metadata_versions, _transaction_level(name, transaction_version), protocol)


def _transaction_level(name: str, configured: int | None) -> int:
    default = NEWEST_TRANSACTION_VERSION if _number(name) >= (4, 0) else 0
    if configured is None or configured <= default:
        return default if configured is None else configured
    reason = f"Kafka {name} does not have the feature" if default == 0 else f"the newest level is {default}"
    raise OptionError(f"transaction.version={configured} is not supported: {reason}", option="transaction.version")


def _protocol(name: str, configured: str | None) -> tuple[int, int]:
    if configured is None:
        return _number(name)
    option = "inter.broker.protocol.version"
    if _number(name) >= (4, 0):
        text = f"{option} is not a setting of Kafka {name}: set like= to a release before 4.0, or remove the setting"
        raise OptionError(text, option=option)
    found = re.fullmatch(r"(?:0\.)?(\d+)\.(\d+)(?:\.\d+)?(?:-IV\d+)?", configured)
    version = (0, 0) if found is None else (0, 0) if configured.startswith("0.") else (int(found[1]), int(found[2]))
    if found is None or version > _number(name):
        raise OptionError(
            f"{option}={configured} is not valid: it must be a Kafka version up to {name}, such as 2.7", option=option
        )
    return version


def _number(name: str) -> tuple[int, int]:
    major, minor = name.split(".")
    return int(major), int(minor)


_NEWEST_VERSIONS: Final[Mapping[str, Mapping[ApiKey, int]]] = {
    "2.1": {
        ApiKey.PRODUCE: 7,
        ApiKey.FETCH: 10,
        ApiKey.LIST_OFFSETS: 4,
        ApiKey.METADATA: 7,
        ApiKey.OFFSET_COMMIT: 6,
        ApiKey.OFFSET_FETCH: 5,
        ApiKey.FIND_COORDINATOR: 2,
        ApiKey.JOIN_GROUP: 3,
        ApiKey.HEARTBEAT: 2,
        ApiKey.LEAVE_GROUP: 2,
        ApiKey.SYNC_GROUP: 2,
        ApiKey.DESCRIBE_GROUPS: 2,
        ApiKey.LIST_GROUPS: 2,
        ApiKey.SASL_HANDSHAKE: 1,
        ApiKey.API_VERSIONS: 2,
        ApiKey.CREATE_TOPICS: 3,
        ApiKey.DELETE_TOPICS: 3,
        ApiKey.DELETE_RECORDS: 1,
        ApiKey.INIT_PRODUCER_ID: 1,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
        ApiKey.ADD_PARTITIONS_TO_TXN: 1,
        ApiKey.ADD_OFFSETS_TO_TXN: 1,
        ApiKey.END_TXN: 1,
        ApiKey.TXN_OFFSET_COMMIT: 2,
        ApiKey.DESCRIBE_ACLS: 1,
        ApiKey.CREATE_ACLS: 1,
        ApiKey.DELETE_ACLS: 1,
        ApiKey.DESCRIBE_CONFIGS: 2,
        ApiKey.ALTER_CONFIGS: 1,
        ApiKey.SASL_AUTHENTICATE: 0,
        ApiKey.CREATE_PARTITIONS: 1,
        ApiKey.DELETE_GROUPS: 1,
        ApiKey.DESCRIBE_LOG_DIRS: 1,
    },
    "2.2": {
        ApiKey.LIST_OFFSETS: 5,
        ApiKey.JOIN_GROUP: 4,
        ApiKey.SASL_AUTHENTICATE: 1,
    },
    "2.3": {
        ApiKey.FETCH: 11,
        ApiKey.METADATA: 8,
        ApiKey.OFFSET_COMMIT: 7,
        ApiKey.JOIN_GROUP: 5,
        ApiKey.HEARTBEAT: 3,
        ApiKey.SYNC_GROUP: 3,
        ApiKey.DESCRIBE_GROUPS: 3,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 3,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    },
    "2.4": {
        ApiKey.PRODUCE: 8,
        ApiKey.METADATA: 9,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 6,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.JOIN_GROUP: 6,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.SYNC_GROUP: 4,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.LIST_GROUPS: 3,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 5,
        ApiKey.DELETE_TOPICS: 4,
        ApiKey.INIT_PRODUCER_ID: 2,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
        ApiKey.OFFSET_DELETE: 0,
    },
    "2.5": {
        ApiKey.OFFSET_FETCH: 7,
        ApiKey.JOIN_GROUP: 7,
        ApiKey.SYNC_GROUP: 5,
        ApiKey.INIT_PRODUCER_ID: 3,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_ACLS: 2,
        ApiKey.CREATE_ACLS: 2,
        ApiKey.DELETE_ACLS: 2,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.CREATE_PARTITIONS: 2,
    },
    "2.6": {
        ApiKey.LIST_GROUPS: 4,
        ApiKey.DELETE_RECORDS: 2,
        ApiKey.DESCRIBE_CONFIGS: 3,
        ApiKey.DESCRIBE_LOG_DIRS: 2,
    },
    "2.7": {
        ApiKey.FETCH: 12,
        ApiKey.CREATE_TOPICS: 6,
        ApiKey.DELETE_TOPICS: 5,
        ApiKey.INIT_PRODUCER_ID: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 2,
        ApiKey.ADD_OFFSETS_TO_TXN: 2,
        ApiKey.END_TXN: 2,
        ApiKey.CREATE_PARTITIONS: 3,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    },
    "2.8": {
        ApiKey.PRODUCE: 9,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 11,
        ApiKey.CREATE_TOPICS: 7,
        ApiKey.DELETE_TOPICS: 6,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 2,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.DESCRIBE_PRODUCERS: 0,
    },
    "3.0": {
        ApiKey.LIST_OFFSETS: 7,
        ApiKey.OFFSET_FETCH: 8,
        ApiKey.FIND_COORDINATOR: 4,
        ApiKey.DESCRIBE_TRANSACTIONS: 0,
        ApiKey.LIST_TRANSACTIONS: 0,
    },
    "3.1": {
        ApiKey.FETCH: 13,
        ApiKey.METADATA: 12,
    },
    "3.2": {
        ApiKey.DESCRIBE_LOG_DIRS: 3,
        ApiKey.JOIN_GROUP: 9,
        ApiKey.LEAVE_GROUP: 5,
    },
    "3.3": {
        ApiKey.DESCRIBE_ACLS: 3,
        ApiKey.CREATE_ACLS: 3,
        ApiKey.DELETE_ACLS: 3,
        ApiKey.DESCRIBE_LOG_DIRS: 4,
    },
    "3.4": {},
    "3.5": {
        ApiKey.FETCH: 15,
        ApiKey.LIST_OFFSETS: 8,
    },
    "3.6": {
        ApiKey.ADD_PARTITIONS_TO_TXN: 4,
    },
    "3.7": {
        ApiKey.PRODUCE: 10,
        ApiKey.FETCH: 16,
        ApiKey.OFFSET_COMMIT: 9,
        ApiKey.OFFSET_FETCH: 9,
        ApiKey.DESCRIBE_CLUSTER: 1,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
        ApiKey.PUSH_TELEMETRY: 0,
    },
    "3.8": {
        ApiKey.PRODUCE: 11,
        ApiKey.FIND_COORDINATOR: 5,
        ApiKey.LIST_GROUPS: 5,
        ApiKey.INIT_PRODUCER_ID: 5,
        ApiKey.ADD_PARTITIONS_TO_TXN: 5,
        ApiKey.ADD_OFFSETS_TO_TXN: 4,
        ApiKey.END_TXN: 4,
        ApiKey.TXN_OFFSET_COMMIT: 4,
        ApiKey.LIST_TRANSACTIONS: 1,
    },
    "3.9": {
        ApiKey.FETCH: 17,
        ApiKey.LIST_OFFSETS: 9,
        ApiKey.FIND_COORDINATOR: 6,
        ApiKey.API_VERSIONS: 4,
    },
    "4.0": {
        ApiKey.PRODUCE: 12,
        ApiKey.LIST_OFFSETS: 10,
        ApiKey.METADATA: 13,
        ApiKey.DESCRIBE_GROUPS: 6,
        ApiKey.END_TXN: 5,
        ApiKey.TXN_OFFSET_COMMIT: 5,
        ApiKey.DESCRIBE_CLUSTER: 2,
    },
    "4.1": {
        ApiKey.PRODUCE: 13,
        ApiKey.FETCH: 18,
        ApiKey.LIST_TRANSACTIONS: 2,
    },
}
"""The newest stable version of each API, by the release that changed it. The numbers come from the message definitions of the
last patch release, without those that need `unstable.api.versions.enable`.
"""

_OLDEST_VERSIONS: Final[Mapping[str, Mapping[ApiKey, int]]] = {"4.0": {ApiKey.JOIN_GROUP: 2}}
"""Versions that a release refuses although this broker could serve them. Before 4.0, Kafka served older ones than this broker
does.
"""

_NOT_YET_WITH_KRAFT: Final[Mapping[str, Collection[ApiKey]]] = dict.fromkeys(
    ("3.3", "3.4"), (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
)


def served(release: KafkaRelease, keys: Collection[ApiKey]) -> dict[int, AnyApi]:
    """Returns the APIs of the release by key, in the versions that both the release and this broker support."""
    newest: dict[ApiKey, int] = {}
    for name in RELEASES[: RELEASES.index(release.name) + 1]:
        newest.update(_NEWEST_VERSIONS[name])
    if not release.has_zookeeper:
        for key in _NOT_YET_WITH_KRAFT.get(release.name, ()):
            del newest[key]
    oldest = _OLDEST_VERSIONS.get(release.name, {})
    return {key: ALL_APIS[key].limited_to(oldest.get(key, 0), newest[key]) for key in sorted(keys) if key in newest}


class ApiVersionManager:
    """Builds ApiVersions responses. Immutable. `served`: the APIs that have a handler and exist in the release, by key."""

    def __init__(self, keys: Collection[ApiKey], release: KafkaRelease) -> None:
        self.served: Mapping[int, AnyApi] = served(release, keys)
        self._release = release

    def response(self, version: int) -> ApiVersionsResponse:
        """Returns the response to an ApiVersions request of `version`."""
        return ApiVersionsResponse(
            0,
            tuple(map(_version_range, self.served.values())),
            supported_features=tuple(_supported_features(self._release, version)),
            finalized_features_epoch=self._release.features_epoch,
            finalized_features=tuple(_finalized_features(self._release)),
        )

    def unsupported(self) -> ApiVersionsResponse:
        """Returns the response to an unknown version of ApiVersions: since 2.4 with that API's own versions (KIP-511)."""
        known = (_version_range(self.served[ApiKey.API_VERSIONS]),) if self._release.names_api_versions else ()
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, known)


def _version_range(api: AnyApi) -> ApiVersion:
    # Kafka 4 serves v3 and later but also lists v0, because librdkafka up to 2.8 assumes that a broker without Produce v0 does
    # not support compression (KAFKA-18659).
    min_version = 0 if api.key is ApiKey.PRODUCE else api.min_version
    return ApiVersion(api.key, min_version, api.max_version)


def _supported_features(release: KafkaRelease, version: int) -> Iterator[SupportedFeatureKey]:
    if release.metadata_versions is not None:
        yield SupportedFeatureKey("metadata.version", *release.metadata_versions)
    # Older clients cannot read a feature that begins at 0 (KAFKA-17492).
    if release.has_transaction_versions and version >= 4:
        yield SupportedFeatureKey("transaction.version", 0, NEWEST_TRANSACTION_VERSION)


def _finalized_features(release: KafkaRelease) -> Iterator[FinalizedFeatureKey]:
    levels = {"transaction.version": release.transaction_version}
    if release.metadata_versions is not None:
        levels = {"metadata.version": release.metadata_versions[1], **levels}
    # A feature that is not listed has level 0.
    return (FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level)
