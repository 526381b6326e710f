"""Exactly-once on other versions of Kafka than the default: rows are visible once although the process that commits is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.exactly_once.fleet import Fleet
from tests.faults.exactly_once.kills import COMMITTED_IN_PART
from tests.faults.exactly_once.moved import moved
from tests.faults.exactly_once.siege import Siege
from tests.kafka.cluster import KafkaCluster
from tests.kafka.version_fixtures import IN_ZOOKEEPER_MODE, only_versions
from tests.kafka.versions import NEWEST

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

BATCHES = 3


# The default version is in tests/faults/exactly_once/.
@only_versions(
    IN_ZOOKEEPER_MODE,
    "3.9",
    "4.0",
    NEWEST,
    whole="a Spark driver; test_kills.py has the default version, test_transactions.py each",
)
def test_each_row_is_visible_once_though_the_commit_is_killed_halfway(
    versioned_kafka: KafkaCluster, topic: str, tmp_path: Path, fleet: Fleet
) -> None:
    rows, query = moved(versioned_kafka, topic, tmp_path, BATCHES)
    with Siege(versioned_kafka, [query], fleet) as siege:
        siege.run([COMMITTED_IN_PART])
        siege.judge(rows)
    assert siege.made == [COMMITTED_IN_PART]
