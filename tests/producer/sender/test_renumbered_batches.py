"""The order of a partition's records when batches that were numbered anew fail in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.accumulator.sequences import MAX_EPOCH
from spark_kafka_sink.records.columns import RecordColumns
from tests.producer.inside import metadata_of
from tests.producer.simulation.clock import VirtualClock
from tests.producer.simulation.cluster import TOPIC, SimulatedCluster
from tests.producer.simulation.stepped_producer import SteppedProducer

BACK_OFF_MS = 100
SETTINGS = {"bootstrap.servers": "a:1", "linger.ms": 0, "batch.size": 1, "max.block.ms": 0, "retry.backoff.ms": BACK_OFF_MS}
LEADER = 0


@pytest.fixture
def stepped() -> Iterator[SteppedProducer]:
    """A producer in the last epoch of its id, connected to brokers that do nothing unless they are told to."""
    cluster, clock = SimulatedCluster(1, strict=False, max_batch=1 << 20, rejects=0), VirtualClock()
    cluster.first_epoch = MAX_EPOCH
    stepped = SteppedProducer(producer_config(SETTINGS), cluster, clock)
    try:
        metadata_of(stepped.producer).add(TOPIC, clock.ms)
        stepped.step()
        yield stepped
    finally:
        stepped.client.healthy = True
        stepped.producer.close()
        stepped.end()


def settle(stepped: SteppedProducer) -> None:
    """Brokers serve everything until nothing waits."""
    stepped.client.healthy = True
    for _ in range(100):
        stepped.step()
        if not stepped.unfinished():
            break
    stepped.client.healthy = False
    assert not stepped.unfinished()


def answers(stepped: SteppedProducer, *fates: str) -> None:
    """The leader answers the oldest requests, one fate each. Then the sender sends what it may by now."""
    for fate in fates:
        stepped.client.serve(LEADER, [fate], count=1)
    for _ in range(2):
        for _ in range(4):
            stepped.step()
        stepped.clock.ms += BACK_OFF_MS


def test_when_the_first_under_a_new_producer_id_fails_for_good_the_others_keep_their_order(stepped: SteppedProducer) -> None:
    """A broker accepts any number of a producer id that it does not know, so it would store a later batch first."""
    scope = stepped.producer.scope()
    scope.append(TOPIC, RecordColumns(1, pa.array([b"0"])))
    settle(stepped)
    scope.append(TOPIC, RecordColumns(4, pa.array([b"1", b"2", b"3", b"4"])))
    for _ in range(6):
        stepped.step()
    assert len(stepped.client.in_flight[LEADER]) == 4
    answers(stepped, "forbidden", "as Kafka", "as Kafka", "as Kafka")  # 2, 3 and 4 are out of order: the epochs are used up
    answers(stepped, "as Kafka")  # another producer id
    answers(stepped, "forbidden")  # 2 was the first batch under it
    answers(stepped, "storage error", "as Kafka")  # 3
    settle(stepped)
    assert stepped.client.cluster.logs[0].stored.values == [b"0", b"3", b"4"]
