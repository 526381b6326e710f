"""A broker is slow when a batch has been due for it, and nothing was drained for it, for longer than the timeout."""

from __future__ import annotations

from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, PartitionQueue
from spark_kafka_sink.producer.accumulator.ready_queues import NodeLatencies
from tests.producer.parts import make_parts

TIMEOUT, LINGER = 100, 50


def queue(leader: int | None, *created_ms: int) -> PartitionQueue:
    """With batches of these ages."""
    made = PartitionQueue("t", 0, leader)
    scope = make_parts().tally()
    made.batches.extend(OpenBatch(made, scope, at, 0) for at in created_ms)
    return made


def slow(latencies: NodeLatencies, now_ms: int, *queues: PartitionQueue) -> set[int]:
    return latencies.slow_nodes(queues, now_ms)


def test_a_node_is_slow_once_a_batch_is_due_for_longer_than_the_timeout() -> None:
    latencies = NodeLatencies(TIMEOUT, LINGER)
    waiting = queue(1, 1000, 1149)
    assert slow(latencies, 1150, waiting) == set()
    assert slow(latencies, 1151, waiting) == {1}


def test_a_node_that_takes_something_now_and_then_is_not() -> None:
    latencies = NodeLatencies(TIMEOUT, LINGER)
    latencies.drained(1, 5000)
    assert slow(latencies, 5100, queue(1, 1000)) == set()
    assert slow(latencies, 5101, queue(1, 1000)) == {1}


def test_a_batch_that_is_to_be_sent_again_counts_with_its_whole_age() -> None:
    latencies = NodeLatencies(TIMEOUT, LINGER)
    refused = queue(1, 8990)
    refused.retries.append(queue(1, 1000).batches[0])  # type: ignore[arg-type]  # its age is all that counts
    assert slow(latencies, 9000, refused) == {1}
