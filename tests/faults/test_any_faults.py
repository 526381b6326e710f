"""Faults in any order and mixture: what was acked is stored, nothing is stored twice, and every partition keeps its order."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.broker.faults.fault_injection import Where
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import ProduceRequest, ProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.conftest import check_numbers
from tests.faults.producing import failing_scope, one_by_one
from tests.faults.recording_broker import RecordingBroker, batches_of, of_partitions
from tests.tiers import whole_but
from tests.waiting import wait_until

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
    """Lets something go wrong with about every third request, in one of its partitions or in all, and moves leaders."""

    def __init__(self, cluster: RecordingBroker, seed: int) -> None:
        self._random = random.Random(seed)
        self._cluster = cluster
        self._seen: set[tuple[int, bytes | None]] = set()
        cluster.faults.watch(ApiKey.PRODUCE, on_request=self)

    def __call__(self, broker: int, body: ProduceRequest) -> None:
        """A request on its way to its handler: what is made here hits it, as the broker serves one at a time of one producer."""
        batches = [(partition, batch.records()[0].value) for _, partition, batch in batches_of(body)]
        partition, value = self._random.choice(batches)
        is_new = (partition, value) not in self._seen
        self._seen.update(batches)
        where = Where(broker=broker, topic="t", partition=partition)
        faults, chosen = self._cluster.faults, self._random.choice
        draw = self._random.random()
        if draw < 0.1:
            faults.fail(ApiKey.PRODUCE, chosen(PASSING), **where)
        elif draw < 0.17:
            code = chosen([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
            faults.fail(ApiKey.PRODUCE, code, applied=True, **where)
        elif draw < 0.22:
            chosen([faults.cut_before, faults.cut_after])(ApiKey.PRODUCE, broker=broker)
        elif draw < 0.25:
            self._leave_out(where)
        elif draw < 0.28:
            self._move(broker, partition)
        elif draw < 0.30 and is_new:
            faults.fail(ApiKey.PRODUCE, chosen(FINAL), **where)

    def _leave_out(self, where: Where) -> None:
        """The answer does not name the partition, whose batch is stored, or not."""
        partition = where["partition"]
        if self._random.random() < 0.5:
            self._cluster.faults.answer(ApiKey.PRODUCE, lambda body: ProduceResponse(), **where)
        else:
            leave_out = of_partitions(lambda said: [said] if said.index != partition else [])
            self._cluster.faults.alter(ApiKey.PRODUCE, leave_out, **where)

    def _move(self, broker: int, partition: int) -> None:
        """The other broker leads from now on; the refusal says so, or not."""
        self._cluster.move_leader("t", partition, 3 - broker)
        if self._random.random() < 0.5:
            unhinted = of_partitions(lambda said: [replace(said, current_leader=None)])
            self._cluster.faults.alter(ApiKey.PRODUCE, unhinted, broker=broker)


@pytest.mark.fault("sequence", "any faults in any order")
@pytest.mark.parametrize("seed", whole_but(range(12), range(2), "two seconds each"))
def test_acked_is_stored_once_and_in_order_whatever_happens(seed: int) -> None:
    with RecordingBroker(2) as cluster:
        cluster.topic("t", leaders=[1] * PARTITIONS)
        Mischief(cluster, seed)
        with one_by_one(cluster.bootstrap_servers) as producer, failing_scope(producer) as scope:
            # All in one append: a later one would raise what has failed meanwhile.
            partitions = np.tile(np.arange(PARTITIONS, dtype=np.int32), RECORDS)
            values = [b"%d" % (1000 * partition + place // PARTITIONS) for place, partition in enumerate(partitions)]
            scope.append("t", RecordColumns(len(values), value=pa.array(values), partition=partitions))
            wait_until(lambda: producer.unfinished() == 0, "all acked or failed")
            report = scope.report()
        for partition in range(PARTITIONS):
            found = cluster.values("t", partition)
            assert found == sorted(set(found)), "out of order or twice"
            assert report.partitions["t", partition].records == len(found)
    check_numbers(cluster)
