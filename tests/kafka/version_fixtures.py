"""The fixtures of tests that run on several versions of Kafka: `kafka_version`, `versioned_kafka`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.versions import DEFAULT, OLDEST, POMS

# The last protocol version between brokers before topics got ids.
WITHOUT_TOPIC_IDS = {"inter.broker.protocol.version": "2.7"}
# The newest one in ZooKeeper mode, whose topics have no ids here.
IN_ZOOKEEPER_MODE = "3.8"
# All in ZooKeeper mode. They have two brokers, so that one of them is not the controller.
WITH_ZOOKEEPER = frozenset({OLDEST, "2.8", IN_ZOOKEEPER_MODE})
# Others find the same, but for what the oldest lack: tests/kafka_versions/test_commands.py, test_oldest.py. All other tests run
# on the default version.
_WHOLE = frozenset({OLDEST, "2.8", "3.3", "3.9", "4.0", DEFAULT})
_NEIGHBOURS = "a cluster of its own, and the neighbouring versions find the same"
HEAP_MB = 256


def only_versions(*versions: str, in_make_test: bool = False, whole: str = "") -> pytest.MarkDecorator:
    """A test with this mark asks for `versioned_kafka` and runs on `versions` only.

    in_make_test: whether it runs in `make test` on each of them. whole: why it runs there on none of them.
    """
    params = [_param(each, whole or ("" if in_make_test else _why_whole(each))) for each in versions]
    return pytest.mark.parametrize("kafka_version", params, indirect=True, scope="session")


def _why_whole(version: str) -> str:
    return _NEIGHBOURS if version in _WHOLE else ""


def _param(version: str, why_whole: str) -> object:
    whole = [pytest.mark.whole(why_whole)] if why_whole else []
    name = f"{version}-zookeeper" if version in WITH_ZOOKEEPER else version
    return pytest.param(version, marks=[pytest.mark.kafka, *whole], id=name)


# For the session, so that pytest puts the tests of a version together and only one of these clusters lives at a time.
@pytest.fixture(scope="session", params=[_param(each, _why_whole(each)) for each in sorted(POMS)])
def kafka_version(request: pytest.FixtureRequest) -> str:
    """The version of `versioned_kafka`, such as "3.9"."""
    version: str = request.param
    return version


@pytest.fixture(scope="session")
def versioned_kafka(kafka_version: str) -> Iterator[KafkaCluster]:
    """A real Kafka of each version in turn; 2.1, 2.8 and 3.8 are in ZooKeeper mode, and 2.1 and 3.8 have no topic ids.

    Tests share it: they make topics of their own with `versioned_kafka.create_topic` and neither stop nor slow it.
    """
    has_zookeeper = kafka_version in WITH_ZOOKEEPER
    overrides = WITHOUT_TOPIC_IDS if kafka_version == IN_ZOOKEEPER_MODE else {}
    with KafkaCluster(
        2 if has_zookeeper else 1, overrides, version=kafka_version, zookeeper=has_zookeeper, heap_mb=HEAP_MB
    ) as cluster:
        yield cluster
