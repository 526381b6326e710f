"""The fixtures of tests that run on several versions of Kafka: `kafka_version`, `versioned_kafka`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.versions import POMS

# The last protocol version between brokers before topics got ids.
WITHOUT_TOPIC_IDS = {"inter.broker.protocol.version": "2.7"}
# The only one in ZooKeeper mode. It has two brokers, so that one of them is not the controller.
IN_ZOOKEEPER_MODE = "3.8"
HEAP_MB = 256


def only_versions(*versions: str) -> pytest.MarkDecorator:
    """A test with this mark asks for `versioned_kafka` and runs on `versions` only."""
    return pytest.mark.parametrize("kafka_version", _params(versions), indirect=True, scope="session")


def _params(versions: tuple[str, ...]) -> list[object]:
    ids = {version: f"{version}-zookeeper" if version == IN_ZOOKEEPER_MODE else version for version in versions}
    return [pytest.param(version, marks=pytest.mark.kafka, id=name) for version, name in ids.items()]


# For the session, so that pytest puts the tests of a version together and only one of these clusters lives at a time.
@pytest.fixture(scope="session", params=_params(tuple(sorted(POMS))))
def kafka_version(request: pytest.FixtureRequest) -> str:
    """The version of `versioned_kafka`, such as "3.9"."""
    version: str = request.param
    return version


@pytest.fixture(scope="session")
def versioned_kafka(kafka_version: str) -> Iterator[KafkaCluster]:
    """A real Kafka of each version in turn; 3.8 is in ZooKeeper mode and has no topic ids.

    Tests share it: they make topics of their own with `versioned_kafka.create_topic` and neither stop nor slow it.
    """
    if kafka_version == IN_ZOOKEEPER_MODE:
        cluster = KafkaCluster(2, WITHOUT_TOPIC_IDS, version=kafka_version, zookeeper=True, heap_mb=HEAP_MB)
    else:
        cluster = KafkaCluster(version=kafka_version, heap_mb=HEAP_MB)
    with cluster:
        yield cluster
