"""Records without a key leave out partitions of a broker that takes nothing, and come back when it does (KIP-794)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from spark_kafka_sink.producer.partitioners.built_in import LOAD_STATS_S
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from tests.faults.mock_cluster import AS_KAFKA, MockCluster, Say
from tests.faults.producing import numbers, one_by_one
from tests.producer.inside import accumulator_of

SLOW = 1
DEADLINE_S = 20.0


def until_too_slow(producer: Producer, scope: SendScope, values: Iterator[int]) -> None:
    """Row by row, so that few come to wait for the slow broker: many would make it unlikely to be chosen anyhow."""
    deadline = time.monotonic() + DEADLINE_S
    while (sizes := accumulator_of(producer).queue_sizes("t", 2)) is None or sizes[0] != [0]:
        scope.append("t", numbers([next(values)]))
        assert time.monotonic() < deadline, "the broker is not found to be slow"
    until = time.monotonic() + LOAD_STATS_S
    while time.monotonic() < until:
        scope.append("t", numbers([next(values)]))


def left_out(producer: Producer, scope: SendScope, values: Iterator[int]) -> bool:
    """Append rows, each a batch; whether none of them went to the slow broker's partition."""
    waiting = accumulator_of(producer).queues("t")[SLOW].batches
    before = len(waiting)
    scope.append("t", numbers(itertools.islice(values, 300)))
    return len(waiting) == before


def test_a_broker_that_takes_nothing_gets_nothing_until_it_does_again(cluster2: MockCluster) -> None:
    cluster2.topic("t", [0, SLOW])
    cluster2.script = lambda received: Say(hold=True) if received.node == SLOW else AS_KAFKA
    settings = {"max_in_flight_requests_per_connection": 1, "partitioner_availability_timeout_ms": 50}
    values = itertools.count()
    with one_by_one(cluster2.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        scope.append("t", numbers([next(values)], 0))
        scope.append("t", numbers([next(values)], SLOW))
        cluster2.wait_for(lambda: any(received.node == SLOW for received in cluster2.received), "a request to the slow broker")
        until_too_slow(producer, scope, values)
        assert len(accumulator_of(producer).queues("t")[SLOW].batches) < 60
        assert left_out(producer, scope, values)
        cluster2.script = None
        cluster2.release()
        scope.flush(20)
        stored = len(cluster2.values(partition=SLOW))
        scope.append("t", numbers(itertools.islice(values, 30)))
        scope.flush(20)
        assert len(cluster2.values(partition=SLOW)) > stored
        assert sorted(cluster2.values() + cluster2.values(partition=SLOW)) == list(range(next(values)))


def test_without_the_timeout_it_goes_on_getting_some(cluster2: MockCluster) -> None:
    cluster2.topic("t", [0, SLOW])
    cluster2.script = lambda received: Say(hold=True) if received.node == SLOW else AS_KAFKA
    values = itertools.count()
    settings = {"max_in_flight_requests_per_connection": 1, "partitioner_adaptive_partitioning_enable": "false"}
    with one_by_one(cluster2.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        scope.append("t", numbers([next(values)], 0))
        scope.append("t", numbers([next(values)], SLOW))
        cluster2.wait_for(lambda: any(received.node == SLOW for received in cluster2.received), "a request to the slow broker")
        assert not left_out(producer, scope, values)
        cluster2.script = None
        cluster2.release()
        scope.flush(20)
