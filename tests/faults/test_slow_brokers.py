"""Records without a key leave out partitions of a broker that takes nothing, and come back when it does (KIP-794)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import figure, numbers, one_by_one
from tests.faults.recording_broker import RecordingBroker

SLOW = 2
ITS_PARTITION = 1
SETTINGS: dict[str, object] = {"max_in_flight_requests_per_connection": 1}


@pytest.fixture
def held(cluster2: RecordingBroker) -> Fault:
    """Broker 1 leads partition 0 of `t`; the slow one leads the other, and takes what comes without an answer."""
    cluster2.topic("t", [1, SLOW])
    return cluster2.faults.hold(ApiKey.PRODUCE, broker=SLOW, times=None)


def waiting(producer: Producer) -> int:
    """How many records wait for the slow broker, once the other has answered for its own."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 0.05:
        now = producer.unfinished() if figure(producer, "requests-in-flight") <= 1 else -1
        if now != before or now < 0:
            before, since = now, time.monotonic()
        time.sleep(0.005)
    return before


def begin(producer: Producer, scope: SendScope, values: Iterator[int], held: Fault) -> None:
    """Both partitions have had a batch, and that of the slow broker is not answered."""
    for partition in (0, ITS_PARTITION):
        scope.append("t", numbers([next(values)], partition))
    held.wait()


def until_left_out(producer: Producer, scope: SendScope, values: Iterator[int]) -> int:
    """Row by row, so that few come to wait for the slow broker: many would make it unlikely to be chosen anyhow.

    Returns how many wait for it.
    """
    counts = [waiting(producer)]
    while len(counts) < 4 or len(set(counts[-4:])) > 1:
        assert len(counts) < 100, "the broker is not found to be slow"
        for value in itertools.islice(values, 20):
            scope.append("t", numbers([value]))
        counts.append(waiting(producer))
    return counts[-1]


def left_out(producer: Producer, scope: SendScope, values: Iterator[int]) -> bool:
    """Append rows, each a batch; whether none of them went to the slow broker's partition."""
    before = waiting(producer)
    scope.append("t", numbers(itertools.islice(values, 300)))
    return waiting(producer) == before


def test_a_broker_that_takes_nothing_gets_nothing_until_it_does_again(cluster2: RecordingBroker, held: Fault) -> None:
    values = itertools.count()
    settings = SETTINGS | {"partitioner_availability_timeout_ms": 50}
    with one_by_one(cluster2.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        begin(producer, scope, values, held)
        assert until_left_out(producer, scope, values) < 60
        assert left_out(producer, scope, values)
        held.remove()
        scope.flush(20)
        stored = len(cluster2.values(partition=ITS_PARTITION))
        scope.append("t", numbers(itertools.islice(values, 30)))
        scope.flush(20)
        assert len(cluster2.values(partition=ITS_PARTITION)) > stored
        assert sorted(cluster2.values() + cluster2.values(partition=ITS_PARTITION)) == list(range(next(values)))


def test_without_the_timeout_it_goes_on_getting_some(cluster2: RecordingBroker, held: Fault) -> None:
    values = itertools.count()
    settings = SETTINGS | {"partitioner_adaptive_partitioning_enable": "false"}
    with one_by_one(cluster2.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        begin(producer, scope, values, held)
        assert not left_out(producer, scope, values)
        held.remove()
        scope.flush(20)
