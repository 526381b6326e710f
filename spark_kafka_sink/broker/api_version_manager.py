"""Which APIs this broker serves, and what it says of itself (Kafka's ApiVersionManager)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

METADATA_VERSIONS: Final = (7, 27)
"""`metadata.version` of Kafka 4.1: 3.3-IV3 to 4.1-IV1."""

TRANSACTION_VERSIONS: Final = (0, 2)

FINALIZED_FEATURES_EPOCH: Final = 1
"""Features do not change while a broker runs; any number that is not negative says that they are known."""


class ApiVersionManager:
    """`served`: the APIs that have a handler, in all versions that are declared, by key. Immutable."""

    def __init__(self, keys: Collection[ApiKey], transaction_version: int) -> None:
        self.served: Mapping[int, AnyApi] = {key: ALL_APIS[key] for key in sorted(keys)}
        self._finalized = {"metadata.version": METADATA_VERSIONS[1], "transaction.version": transaction_version}

    def response(self, version: int) -> ApiVersionsResponse:
        """For an ApiVersions request of `version`."""
        return ApiVersionsResponse(
            0,
            tuple(map(_range, self.served.values())),
            supported_features=_supported(version),
            finalized_features_epoch=FINALIZED_FEATURES_EPOCH,
            # Level 0 is what a feature has that is not listed.
            finalized_features=tuple(FinalizedFeatureKey(name, level, level) for name, level in self._finalized.items() if level),
        )


def _range(api: AnyApi) -> ApiVersion:
    # Kafka 4 serves v3 and later, and says v0 as well: librdkafka up to 2.8 takes a broker without Produce v0 for one that
    # cannot compress (KAFKA-18659).
    min_version = 0 if api.key is ApiKey.PRODUCE else api.min_version
    return ApiVersion(api.key, min_version, api.max_version)


def _supported(version: int) -> tuple[SupportedFeatureKey, ...]:
    metadata = SupportedFeatureKey("metadata.version", *METADATA_VERSIONS)
    # Older clients cannot read a feature that begins at 0 (KAFKA-17492).
    return (metadata,) if version < 4 else (metadata, SupportedFeatureKey("transaction.version", *TRANSACTION_VERSIONS))
