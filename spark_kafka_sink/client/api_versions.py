"""API versions and features: the highest version that a broker and this client both support (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.version import __version__

SOFTWARE_NAME: Final = "spark-kafka-sink"

OLDEST_RELEASE: Final = "2.1"

# The first release whose brokers offer this version of an API, oldest first.
_RELEASES: Final = (
    (OLDEST_RELEASE, ApiKey.PRODUCE, 7),
    ("2.2", ApiKey.LIST_OFFSETS, 5),
    ("2.3", ApiKey.FETCH, 11),
    ("2.4", ApiKey.PRODUCE, 8),
    ("2.5", ApiKey.INIT_PRODUCER_ID, 3),
    ("2.6", ApiKey.LIST_GROUPS, 4),
    ("2.7", ApiKey.FETCH, 12),
    ("2.8", ApiKey.DESCRIBE_CLUSTER, 0),
    ("3.0", ApiKey.LIST_TRANSACTIONS, 0),
    ("3.1 to 3.4", ApiKey.FETCH, 13),
    ("3.5", ApiKey.FETCH, 15),
    ("3.6", ApiKey.ADD_PARTITIONS_TO_TXN, 4),
    ("3.7", ApiKey.PRODUCE, 10),
    ("3.8", ApiKey.END_TXN, 4),
    ("3.9", ApiKey.FETCH, 17),
    ("4.0", ApiKey.METADATA, 13),
    ("4.1 or newer", ApiKey.PRODUCE, 13),
)


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The versions that one broker supports: lowest and highest by API key. `label` names the broker in errors."""

    label: str
    ranges: Mapping[int, tuple[int, int]]

    @property
    def release(self) -> str:
        """The newest Kafka release, such as "3.7", that has no API that the broker lacks, as far as releases differ in them."""
        found = f"older than {OLDEST_RELEASE}"
        for name, key, version in _RELEASES:
            if self.newest(key) < version:
                break
            found = name
        return found

    def newest(self, key: ApiKey) -> int:
        """Returns the highest version of an API; -1 if the broker does not have it."""
        return self.ranges.get(key, (0, -1))[1]

    def usable(self, api: AnyApi, max_version: int | None = None) -> int:
        """Returns the highest version of `api` up to `max_version`. Raises UnsupportedVersionError if there is none."""
        ours = (api.min_version, api.max_version if max_version is None else min(api.max_version, max_version))
        theirs = self.ranges.get(api.key)
        if theirs is None:
            raise UnsupportedVersionError(f"{self.label} does not support {api.name}", api=api.name, broker=self.label)
        version = min(ours[1], theirs[1])
        if version < max(ours[0], theirs[0]):
            raise UnsupportedVersionError(
                f"{self.label} supports {api.name} v{theirs[0]} to v{theirs[1]}, but this client v{ours[0]} to v{ours[1]}",
                api=api.name,
                broker=self.label,
            )
        return version


def node_api_versions(label: str, response: ApiVersionsResponse) -> NodeApiVersions:
    return NodeApiVersions(label, {key.api_key: (key.min_version, key.max_version) for key in response.api_keys})


class FinalizedFeatures:
    """The cluster's finalized features (KIP-584), from the broker with the newest epoch, as in Java's ApiVersions.

    Epochs are per cluster, so epochs of two clusters are not compared (Java compares them).
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._levels: Mapping[str, int] = {}
        self._responses: dict[int, ApiVersionsResponse] = {}  # the last of each node

    def update(self, response: ApiVersionsResponse, node_id: int) -> None:
        self._responses[node_id] = response
        if response.finalized_features_epoch > self._epoch:
            self._take(response)

    def begin_again(self, node_id: int) -> None:
        """Takes this node's features whatever the epoch, because the node belongs to another cluster than the others."""
        self._take(self._responses[node_id])

    def _take(self, response: ApiVersionsResponse) -> None:
        self._epoch = response.finalized_features_epoch
        self._levels = {feature.name: feature.max_version_level for feature in response.finalized_features}

    def level(self, name: str) -> int:
        """Returns the level of a feature; 0 if it is not finalized, or if no broker has reported it yet."""
        return self._levels.get(name, 0)


def fallback_version(asked: int, response: ApiVersionsResponse) -> int | None:
    """Returns the next version of ApiVersions to try after `response` rejected `asked`; None if there is none.

    Brokers since 2.4 return their versions with the rejection; others get v0, which all support.
    """
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION or asked == 0:
        return None
    offered = [key.max_version for key in response.api_keys if key.api_key == API_VERSIONS.key]
    return max(0, min(asked - 1, offered[0])) if offered else 0


@functools.cache
def api_versions_request(cluster_id: str | None = None, node_id: int = -1) -> ApiVersionsRequest:
    """Returns the request, to a broker that must be this one if `cluster_id` and `node_id` are given."""
    return ApiVersionsRequest(SOFTWARE_NAME, software_version(), cluster_id, node_id)


def software_version() -> str:
    """Returns this package's version in the characters that brokers allow (SUPPORTED_CLIENT_SOFTWARE_NAME_PATTERN of Java)."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", __version__)
