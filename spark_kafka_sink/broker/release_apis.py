"""The versions of each API in every release that a broker can be told to be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from spark_kafka_sink.broker.kafka_release import RELEASES, KafkaRelease
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey

_NEWEST_VERSIONS: Final[Mapping[str, Mapping[ApiKey, int]]] = {
    "2.8": {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 11,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 7,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.JOIN_GROUP: 7,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.SYNC_GROUP: 5,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.LIST_GROUPS: 4,
        ApiKey.SASL_HANDSHAKE: 1,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 7,
        ApiKey.DELETE_TOPICS: 6,
        ApiKey.DELETE_RECORDS: 2,
        ApiKey.INIT_PRODUCER_ID: 4,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 2,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.CREATE_PARTITIONS: 3,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
        ApiKey.OFFSET_DELETE: 0,
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
        ApiKey.JOIN_GROUP: 9,
        ApiKey.LEAVE_GROUP: 5,
    },
    "3.3": {},
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
"""The newest stable version of each API, where the release changed it. From the message definitions of the last patch release,
without what only works with `unstable.api.versions.enable`."""

_OLDEST_VERSIONS: Final[Mapping[str, Mapping[ApiKey, int]]] = {"4.0": {ApiKey.JOIN_GROUP: 2}}
"""Where a release refuses versions that this broker would serve. Before 4.0 Kafka served older ones than this broker does."""


def served(release: KafkaRelease, keys: Collection[ApiKey]) -> dict[int, AnyApi]:
    """Returns those of the APIs that the release has, by key, in the versions that both the release and this broker speak."""
    newest: dict[ApiKey, int] = {}
    for name in RELEASES[: RELEASES.index(release.name) + 1]:
        newest.update(_NEWEST_VERSIONS[name])
    oldest = _OLDEST_VERSIONS.get(release.name, {})
    return {key: ALL_APIS[key].limited_to(oldest.get(key, 0), newest[key]) for key in sorted(keys) if key in newest}
