"""Which Kafka a broker looks like: the features and checks of each release that it can be told to be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import nearest

RELEASES: Final = ("2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1")
"""The releases that a broker can be told to be, oldest first."""

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
"""The levels of `metadata.version`: the oldest supported one, the default. Releases that are not here run with ZooKeeper."""


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """What clients can see of a Kafka release and its settings. Immutable.

    metadata_versions: the supported levels of `metadata.version`, the last one finalized; None with ZooKeeper, which has no
    features. transaction_version: the finalized level of `transaction.version`; 0 where the feature does not exist.
    inter_broker_protocol: what brokers with ZooKeeper speak with each other.
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
    def has_topic_ids(self) -> bool:
        return self.inter_broker_protocol >= (2, 8)

    @property
    def features_epoch(self) -> int:
        """What ApiVersions tells of the finalized features; -1: nothing."""
        if not self.has_zookeeper:
            return 1  # features do not change while a broker runs, so any number that is not negative will do
        return 0 if self.inter_broker_protocol >= (2, 7) else -1

    def verifies_transactions(self, *, of_offsets: bool) -> bool:
        """Whether the coordinator is asked before the first record of a transaction is stored (KIP-890): in partitions since
        3.6, for the offsets of groups since 3.7."""
        return _number(self.name) >= ((3, 7) if of_offsets else (3, 6))


def kafka_release(name: str, transaction_version: int | None, inter_broker_protocol_version: str | None) -> KafkaRelease:
    """Returns the release of that `name`, such as "3.7", with these settings.

    Args:
        transaction_version: the level of the feature `transaction.version`; None: the release's default.
        inter_broker_protocol_version: as Kafka's setting; None: the release's own. With it a release runs with ZooKeeper,
            because Kafka ignores it without.

    Raises:
        OptionError: the release is not known, or it does not have the setting.
    """
    if name not in RELEASES:
        raise OptionError(
            f"like={name!r} is not a known release of Kafka; it must be one of {', '.join(RELEASES)}{nearest(name, RELEASES)}",
            option="like",
        )
    protocol = _protocol(name, inter_broker_protocol_version)
    metadata_versions = _METADATA_VERSIONS.get(name) if inter_broker_protocol_version is None else None
    return KafkaRelease(name, metadata_versions, _transaction_level(name, transaction_version), protocol)


def _transaction_level(name: str, wanted: int | None) -> int:
    default = NEWEST_TRANSACTION_VERSION if _number(name) >= (4, 0) else 0
    if wanted is None or wanted <= default:
        return default if wanted is None else wanted
    why = f"Kafka {name} does not have the feature" if default == 0 else f"the newest level is {default}"
    raise OptionError(f"transaction.version={wanted} is not supported: {why}", option="transaction.version")


def _protocol(name: str, wanted: str | None) -> tuple[int, int]:
    if wanted is None:
        return _number(name)
    option = "inter.broker.protocol.version"
    if _number(name) >= (4, 0):
        text = f"{option} is not a setting of Kafka {name}: set like= to a release before 4.0, or leave it out"
        raise OptionError(text, option=option)
    found = re.fullmatch(r"(?:0\.)?(\d+)\.(\d+)(?:\.\d+)?(?:-IV\d+)?", wanted)
    version = (0, 0) if found is None else (0, 0) if wanted.startswith("0.") else (int(found[1]), int(found[2]))
    if found is None or version > _number(name):
        raise OptionError(f"{option}={wanted} must be a version of Kafka up to {name}, such as 2.7", option=option)
    return version


def _number(name: str) -> tuple[int, int]:
    major, minor = name.split(".")
    return int(major), int(minor)
