"""Which APIs this broker serves, and what it says of itself (Kafka's ApiVersionManager)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from spark_kafka_sink.broker.kafka_release import NEWEST_TRANSACTION_VERSION, KafkaRelease
from spark_kafka_sink.broker.release_apis import served
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode


class ApiVersionManager:
    """`served`: the APIs that have a handler and that the release has, by key. Immutable."""

    def __init__(self, keys: Collection[ApiKey], release: KafkaRelease) -> None:
        self.served: Mapping[int, AnyApi] = served(release, keys)
        self._release = release

    def response(self, version: int) -> ApiVersionsResponse:
        """For an ApiVersions request of `version`."""
        return ApiVersionsResponse(
            0,
            tuple(map(_range, self.served.values())),
            supported_features=tuple(_supported(self._release, version)),
            finalized_features_epoch=self._release.features_epoch,
            finalized_features=tuple(_finalized(self._release)),
        )

    def unsupported(self) -> ApiVersionsResponse:
        """For an ApiVersions request of an unknown version: the versions of ApiVersions itself (KIP-511)."""
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, (_range(self.served[ApiKey.API_VERSIONS]),))


def _range(api: AnyApi) -> ApiVersion:
    # Kafka 4 serves v3 and later, and says v0 as well: librdkafka up to 2.8 takes a broker without Produce v0 for one that
    # cannot compress (KAFKA-18659).
    min_version = 0 if api.key is ApiKey.PRODUCE else api.min_version
    return ApiVersion(api.key, min_version, api.max_version)


def _supported(release: KafkaRelease, version: int) -> Iterator[SupportedFeatureKey]:
    if release.metadata_versions is not None:
        yield SupportedFeatureKey("metadata.version", *release.metadata_versions)
    # Older clients cannot read a feature that begins at 0 (KAFKA-17492).
    if release.has_transaction_versions and version >= 4:
        yield SupportedFeatureKey("transaction.version", 0, NEWEST_TRANSACTION_VERSION)


def _finalized(release: KafkaRelease) -> Iterator[FinalizedFeatureKey]:
    levels = {"transaction.version": release.transaction_version}
    if release.metadata_versions is not None:
        levels = {"metadata.version": release.metadata_versions[1], **levels}
    # Level 0 is what a feature has that is not listed.
    return (FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level)
