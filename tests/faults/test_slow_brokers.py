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
from tests.faults.producing import numbers, one_by_one
from tests.faults.recording_broker import RecordingBroker
from tests.waiting import wait_until

SLOW = 2
ITS_PARTITION = 1
# Only a machine that stands still for that long takes the other broker for slow as well.
AVAILABILITY_TIMEOUT_MS = 1000
SETTINGS: dict[str, object] = {"max_in_flight_requests_per_connection": 1}


@pytest.fixture
def held(cluster2: RecordingBroker) -> Fault:
    """Broker 1 leads partition 0 of `t`; the slow one leads the other, and takes what comes without an answer."""
    cluster2.topic("t", [1, SLOW])
    return cluster2.faults.hold(ApiKey.PRODUCE, broker=SLOW, times=None)


def begin(producer: Producer, scope: SendScope, values: Iterator[int], held: Fault) -> None:
    """The slow broker has a batch that it does not answer, and another waits for it. The other broker has answered."""
    scope.append("t", numbers([next(values)], 0))
    scope.append("t", numbers([next(values)], ITS_PARTITION))
    held.wait()
    scope.append("t", numbers([next(values)], ITS_PARTITION))
    wait_until(lambda: producer.unfinished() == 2, "the answer of the other broker")


def append(scope: SendScope, values: Iterator[int], count: int) -> set[int]:
    """Appends rows without a key, each a batch, and returns them."""
    rows = list(itertools.islice(values, count))
    scope.append("t", numbers(rows))
    return set(rows)


def test_a_broker_that_takes_nothing_gets_nothing_until_it_does_again(cluster2: RecordingBroker, held: Fault) -> None:
    values = itertools.count()
    settings = SETTINGS | {"partitioner_availability_timeout_ms": AVAILABILITY_TIMEOUT_MS}
    with one_by_one(cluster2.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        begin(producer, scope, values, held)
        since = time.monotonic()
        wait_until(lambda: time.monotonic() - since > AVAILABILITY_TIMEOUT_MS / 1000 + 0.1, "the timeout")
        meanwhile = append(scope, values, 300)
        held.remove()
        scope.flush(120)
        assert not meanwhile & set(cluster2.values(partition=ITS_PARTITION))
        again = append(scope, values, 30)
        scope.flush(20)
        assert again & set(cluster2.values(partition=ITS_PARTITION))
        assert sorted(cluster2.values() + cluster2.values(partition=ITS_PARTITION)) == list(range(next(values)))


def test_without_the_timeout_it_goes_on_getting_some(cluster2: RecordingBroker, held: Fault) -> None:
    values = itertools.count()
    settings = SETTINGS | {"partitioner_adaptive_partitioning_enable": "false"}
    with one_by_one(cluster2.bootstrap_servers, **settings) as producer, producer.scope() as scope:
        begin(producer, scope, values, held)
        meanwhile = append(scope, values, 300)
        held.remove()
        scope.flush(120)
        assert meanwhile & set(cluster2.values(partition=ITS_PARTITION))
