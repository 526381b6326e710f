"""The visible features of each Kafka release: features, checks and API versions, and the ApiVersions response about them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis.metadata import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from spark_kafka_sink.protocol.error_codes import ErrorCode

NEWEST_TRANSACTION_VERSION: Final = 2

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
        ApiKey.DESCRIBE_LOG_DIRS: 1,
        ApiKey.SASL_AUTHENTICATE: 0,
        ApiKey.CREATE_PARTITIONS: 1,
        ApiKey.DELETE_GROUPS: 1,
    },
    "3.7": {
        ApiKey.PRODUCE: 10,
        ApiKey.FETCH: 16,
        ApiKey.LIST_OFFSETS: 8,
        ApiKey.METADATA: 12,
        ApiKey.OFFSET_COMMIT: 9,
        ApiKey.OFFSET_FETCH: 9,
        ApiKey.FIND_COORDINATOR: 4,
        ApiKey.JOIN_GROUP: 9,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 5,
        ApiKey.SYNC_GROUP: 5,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.LIST_GROUPS: 4,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 7,
        ApiKey.DELETE_TOPICS: 6,
        ApiKey.DELETE_RECORDS: 2,
        ApiKey.INIT_PRODUCER_ID: 4,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 4,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_ACLS: 3,
        ApiKey.CREATE_ACLS: 3,
        ApiKey.DELETE_ACLS: 3,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 2,
        ApiKey.DESCRIBE_LOG_DIRS: 4,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.CREATE_PARTITIONS: 3,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
        ApiKey.OFFSET_DELETE: 0,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.DESCRIBE_CLUSTER: 1,
        ApiKey.DESCRIBE_PRODUCERS: 0,
        ApiKey.DESCRIBE_TRANSACTIONS: 0,
        ApiKey.LIST_TRANSACTIONS: 0,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
        ApiKey.PUSH_TELEMETRY: 0,
    },
    "3.9": {
        ApiKey.PRODUCE: 11,
        ApiKey.FETCH: 17,
        ApiKey.LIST_OFFSETS: 9,
        ApiKey.FIND_COORDINATOR: 6,
        ApiKey.LIST_GROUPS: 5,
        ApiKey.API_VERSIONS: 4,
        ApiKey.INIT_PRODUCER_ID: 5,
        ApiKey.ADD_PARTITIONS_TO_TXN: 5,
        ApiKey.ADD_OFFSETS_TO_TXN: 4,
        ApiKey.END_TXN: 4,
        ApiKey.TXN_OFFSET_COMMIT: 4,
        ApiKey.LIST_TRANSACTIONS: 1,
    },
    "4.1": {
        ApiKey.PRODUCE: 13,
        ApiKey.FETCH: 18,
        ApiKey.LIST_OFFSETS: 10,
        ApiKey.METADATA: 13,
        ApiKey.DESCRIBE_GROUPS: 6,
        ApiKey.END_TXN: 5,
        ApiKey.TXN_OFFSET_COMMIT: 5,
        ApiKey.DESCRIBE_CLUSTER: 2,
        ApiKey.LIST_TRANSACTIONS: 2,
    },
}
"""The newest stable version of each API, by the release that has changed it since the release before. The numbers come from the
message definitions of the last patch release, without those that need `unstable.api.versions.enable`.
"""

RELEASES: Final = tuple(_NEWEST_VERSIONS)
"""The supported values of `like`, oldest first."""

NEWEST_RELEASE: Final = RELEASES[-1]


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """The part of a Kafka release and its settings that clients can see. Immutable.

    transaction_version: the finalized level of `transaction.version`; 0 where the feature does not exist.
    """

    name: str
    transaction_version: int

    @property
    def is_2_1(self) -> bool:
        """Whether the cluster is one of Kafka 2.1: with ZooKeeper, without features, and without verification of transactions."""
        return self.name == "2.1"


def kafka_release(name: str, transaction_version: int | None) -> KafkaRelease:
    """Returns the Kafka release `name`, such as "3.7".

    Args:
        name: the release, one of `RELEASES`.
        transaction_version: the level of the feature `transaction.version`. None: the release's default.

    Raises:
        OptionError: the release is unknown or does not have the setting.
    """
    if name not in RELEASES:
        raise OptionError(f"like={name!r} is not supported; it must be one of {', '.join(RELEASES)}", option="like")
    default = NEWEST_TRANSACTION_VERSION if name == NEWEST_RELEASE else 0
    if transaction_version is None or transaction_version <= default:
        return KafkaRelease(name, default if transaction_version is None else transaction_version)
    reason = f"Kafka {name} does not have the feature" if default == 0 else f"the newest level is {default}"
    raise OptionError(f"transaction.version={transaction_version} is not supported: {reason}", option="transaction.version")


_METADATA_VERSIONS: Final[Mapping[str, tuple[int, int]]] = {"3.7": (1, 19), "3.9": (1, 21), "4.1": (7, 27)}
"""The levels of `metadata.version`: (oldest supported, finalized). Kafka 2.1 does not have the feature."""


def served(release: KafkaRelease, keys: Collection[ApiKey]) -> dict[int, AnyApi]:
    """Returns the APIs of the release by key, in the versions that both the release and this broker support."""
    newest: dict[ApiKey, int] = {}
    for name in RELEASES[: RELEASES.index(release.name) + 1]:
        newest.update(_NEWEST_VERSIONS[name])
    return {key: ALL_APIS[key].limited_to(0, newest[key]) for key in sorted(keys) if key in newest}


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
            # Features do not change while a broker runs, so any non-negative number is right.
            finalized_features_epoch=1,
            finalized_features=tuple(_finalized_features(self._release)),
        )

    def unsupported(self) -> ApiVersionsResponse:
        """Returns the response to an unknown version of ApiVersions: since 2.4 with that API's own versions (KIP-511)."""
        known = (_version_range(self.served[ApiKey.API_VERSIONS]),) if not self._release.is_2_1 else ()
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, known)


def _version_range(api: AnyApi) -> ApiVersion:
    # Kafka 4 serves v3 and later but also lists v0, because librdkafka up to 2.8 assumes that a broker without Produce v0 does
    # not support compression (KAFKA-18659).
    min_version = 0 if api.key is ApiKey.PRODUCE else api.min_version
    return ApiVersion(api.key, min_version, api.max_version)


def _supported_features(release: KafkaRelease, version: int) -> Iterator[SupportedFeatureKey]:
    if release.name in _METADATA_VERSIONS:
        yield SupportedFeatureKey("metadata.version", *_METADATA_VERSIONS[release.name])
    # Older clients cannot read a feature that begins at 0 (KAFKA-17492).
    if release.name == NEWEST_RELEASE and version >= 4:
        yield SupportedFeatureKey("transaction.version", 0, NEWEST_TRANSACTION_VERSION)


def _finalized_features(release: KafkaRelease) -> Iterator[FinalizedFeatureKey]:
    _, metadata_version = _METADATA_VERSIONS.get(release.name, (0, 0))
    levels = {"metadata.version": metadata_version, "transaction.version": release.transaction_version}
    # A feature that is not listed has level 0.
    return (FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level)
