"""A Spark driver for all versions of Kafka, and topics of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.exactly_once.driver import Fleet
from tests.kafka.cluster import KafkaCluster


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Spark drivers; the first is used by the tests of every version."""
    with Fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def topic(versioned_kafka: KafkaCluster, tmp_path: Path) -> str:
    """A topic of four partitions on `versioned_kafka`."""
    return versioned_kafka.create_topic(f"{tmp_path.parent.name}-{tmp_path.name}".replace("[", "-").replace("]", ""), 4)
