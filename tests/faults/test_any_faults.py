"""Faults in any order and mixture: what was acked is stored, nothing is stored twice, and every partition keeps its order."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.produce import LeaderIdAndEpoch
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.conftest import check_numbers
from tests.faults.mock_cluster import AS_KAFKA, MockCluster, Received, Say
from tests.faults.numbered_stream import wait_until
from tests.faults.producing import failing_scope, one_by_one
from tests.producer.inside import begin_flush

pytestmark = pytest.mark.slow

PARTITIONS = 3
RECORDS = 120  # to each partition
PASSING = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]
FINAL = [ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE]


class Mischief:
    """A script that does something wrong to about every third batch, and moves leaders."""

    def __init__(self, cluster: MockCluster, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = cluster

    def __call__(self, received: Received) -> Say:
        draw = self.random.random()
        if draw < 0.1:
            return Say(self.random.choice(PASSING))
        if draw < 0.17:
            return Say(self.random.choice([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]), stored=True)
        if draw < 0.22:
            return Say(code=self.random.choice([0, ErrorCode.NOT_ENOUGH_REPLICAS]), reset=True)
        if draw < 0.25:
            return Say(absent=True, code=self.random.choice([0, ErrorCode.NOT_ENOUGH_REPLICAS]))
        if draw < 0.28:
            return self._move(received)
        if draw < 0.30 and not self._is_stored(received):
            return Say(self.random.choice(FINAL))
        return AS_KAFKA

    def _is_stored(self, received: Received) -> bool:
        return int(received.values[0] or b"") in self.cluster.values(received.topic, received.partition)

    def _move(self, received: Received) -> Say:
        """The other node leads from now on; the refusal says so, or not."""
        topic = self.cluster.topics[received.topic]
        self.cluster.move(received.topic, 1 - topic.leaders[received.partition], received.partition)
        told = LeaderIdAndEpoch(topic.leaders[received.partition], topic.epochs[received.partition])
        return Say(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=self.random.choice([told, None]))


@pytest.mark.parametrize("seed", range(12))
def test_acked_is_stored_once_and_in_order_whatever_happens(seed: int) -> None:
    with MockCluster(2) as cluster:
        cluster.topic("t", leaders=[0] * PARTITIONS)
        cluster.script = Mischief(cluster, seed)
        with one_by_one(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
            # All in one append: a later one would raise what has failed meanwhile.
            partitions = np.tile(np.arange(PARTITIONS, dtype=np.int32), RECORDS)
            values = [b"%d" % (1000 * partition + place // PARTITIONS) for place, partition in enumerate(partitions)]
            scope.append("t", RecordColumns(len(values), value=pa.array(values), partition=partitions))
            begin_flush(producer, scope)
            wait_until(
                lambda: scope.report().records + scope.tally.failed_records == PARTITIONS * RECORDS, "all acked or failed", 30
            )
            report = scope.report()
        for partition in range(PARTITIONS):
            found = cluster.values("t", partition)
            assert found == sorted(set(found)), "out of order or twice"
            assert report.partitions["t", partition].records == len(found)
    check_numbers(cluster)
