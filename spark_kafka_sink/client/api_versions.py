"""Which version of an API to use with a broker: what both sides speak, the highest of it (KIP-35, KIP-511)."""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode

SOFTWARE_NAME: Final = "spark-kafka-sink"


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """What one broker said it speaks: lowest and highest version by API key. `label` names it in errors."""

    label: str
    ranges: Mapping[int, tuple[int, int]]

    def usable(self, api: AnyApi, max_version: int | None = None) -> int:
        """The highest version of `api`, not over `max_version`. Raises UnsupportedVersionError where there is none."""
        ours = (api.min_version, api.max_version if max_version is None else min(api.max_version, max_version))
        theirs = self.ranges.get(api.key)
        if theirs is None:
            raise UnsupportedVersionError(f"{self.label} does not know {api.name}", api=api.name, broker=self.label)
        version = min(ours[1], theirs[1])
        if version < max(ours[0], theirs[0]):
            raise UnsupportedVersionError(
                f"{self.label} speaks {api.name} v{theirs[0]} to v{theirs[1]}, this client v{ours[0]} to v{ours[1]}",
                api=api.name,
                broker=self.label,
            )
        return version


def node_api_versions(label: str, response: ApiVersionsResponse) -> NodeApiVersions:
    return NodeApiVersions(label, {key.api_key: (key.min_version, key.max_version) for key in response.api_keys})


class FinalizedFeatures:
    """What the cluster agreed on (KIP-584), as the broker knows it that is furthest: Java's ApiVersions.

    Each cluster counts epochs by itself, so they are not compared over two clusters (Java compares them).
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._levels: Mapping[str, int] = {}
        self._said: dict[int, ApiVersionsResponse] = {}  # by node, last

    def update(self, response: ApiVersionsResponse, node_id: int) -> None:
        self._said[node_id] = response
        if response.finalized_features_epoch > self._epoch:
            self._take(response)

    def begin_again(self, node_id: int) -> None:
        """Believes what this node said, whatever others have: it is of another cluster than they."""
        self._take(self._said[node_id])

    def _take(self, response: ApiVersionsResponse) -> None:
        self._epoch = response.finalized_features_epoch
        self._levels = {feature.name: feature.max_version_level for feature in response.finalized_features}

    def level(self, name: str) -> int:
        """Of a feature; 0 for one that is not finalized, or that no broker has told of yet."""
        return self._levels.get(name, 0)


def fallback_version(asked: int, response: ApiVersionsResponse) -> int | None:
    """The version of ApiVersions to ask in after `response` refused `asked`; None where there is nothing left to try.

    Brokers since 2.4 say in the refusal what they speak; others get v0, which all know.
    """
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION or asked == 0:
        return None
    offered = [key.max_version for key in response.api_keys if key.api_key == API_VERSIONS.key]
    return max(0, min(asked - 1, offered[0])) if offered else 0


@functools.cache
def api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=software_version())


def software_version() -> str:
    """The installed version in the letters that brokers allow (ApiVersionsRequest.SUPPORTED_CLIENT_SOFTWARE_NAME_PATTERN)."""
    try:
        version = importlib.metadata.version(SOFTWARE_NAME)
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "unknown"
    return re.sub(r"[^A-Za-z0-9.-]", "-", version)
