"""What the accumulator tells the partitioners of what waits in it, and of brokers that take nothing."""

from __future__ import annotations

import pytest

from tests.producer.clusters import cluster_of
from tests.producer.parts import Parts, make_parts

COUNT = 3


def lingering(**settings: int) -> Parts:
    parts = make_parts(**{"linger_ms": 60_000, **settings})
    parts.cluster = cluster_of({"t": COUNT})
    parts.ready_nodes()
    return parts


def waiting(parts: Parts) -> dict[int, int] | None:
    sizes = parts.accumulator.queue_sizes("t", COUNT)
    return None if sizes is None else dict(zip(*sizes, strict=True))


def batches(parts: Parts, *partitions: int) -> None:
    """A batch of its own in each of them: every append is another scope's."""
    for partition in partitions:
        parts.append(parts.tally(), [b"x"], [partition])


def test_nothing_is_told_before_each_partition_has_had_a_batch() -> None:
    parts = lingering()
    batches(parts, 0, 0, 1)
    assert waiting(parts) is None
    batches(parts, 2)
    assert waiting(parts) == {0: 2, 1: 1, 2: 1}


def test_batches_that_were_drained_do_not_wait_but_those_to_be_sent_again_do() -> None:
    parts = lingering()
    batches(parts, 0, 1, 2)
    parts.accumulator.flush(None)
    drained = parts.drain()
    assert waiting(parts) == {0: 0, 1: 0, 2: 0}
    queue = drained[0].queue
    queue.retries.append(drained[0])  # type: ignore[arg-type]  # how many is all that counts
    assert waiting(parts) == {0: 0, 1: 0, 2: 0} | {queue.partition: 1}


def test_partitions_without_a_leader_are_left_out() -> None:
    parts = lingering()
    batches(parts, 0, 1, 2)
    parts.cluster = cluster_of({"t": COUNT}, leaderless=[("t", 1)])
    parts.ready_nodes()
    assert waiting(parts) == {0: 1, 2: 1}


def test_partitions_that_the_topic_no_longer_has_are_left_out() -> None:
    parts = lingering()
    batches(parts, 0, 1, 2)
    assert parts.accumulator.queue_sizes("t", 2) == ([0, 1], [1, 1])


def test_partitions_of_a_slow_broker_are_left_out_while_something_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = lingering(partitioner_availability_timeout_ms=100)
    monkeypatch.setattr("spark_kafka_sink.producer.accumulator.record_accumulator.monotonic_ms", parts.clock)
    batches(parts, 0, 1, 2)
    assert waiting(parts) == {0: 1, 1: 1, 2: 1}
    parts.passed_ms = 60_500
    assert waiting(parts) == {}
    parts.accumulator.flush(None)
    parts.drain()
    assert waiting(parts) == {0: 0, 1: 0, 2: 0}
    batches(parts, 1)
    assert waiting(parts) == {0: 0, 1: 1, 2: 0}
    parts.passed_ms = 200_000
    assert waiting(parts) == {0: 0, 2: 0}


def test_by_default_no_broker_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = lingering()
    monkeypatch.setattr("spark_kafka_sink.producer.accumulator.record_accumulator.monotonic_ms", parts.clock)
    batches(parts, 0, 1, 2)
    parts.passed_ms = 200_000
    assert waiting(parts) == {0: 1, 1: 1, 2: 1}


def test_open_batches_are_told_with_their_bytes() -> None:
    parts = lingering()
    assert (parts.accumulator.open_sizes("t"), parts.accumulator.open_size("t", 1)) == ({}, None)
    batches(parts, 0, 1)
    parts.append(parts.tally(), [b"x" * 100], [1])
    sizes = parts.accumulator.open_sizes("t")
    assert sorted(sizes) == [0, 1]
    assert 100 < sizes[1] < 120
    assert parts.accumulator.open_size("t", 1) == sizes[1]
    parts.drain_all()
    assert (parts.accumulator.open_sizes("t"), parts.accumulator.open_size("t", 1)) == ({}, None)
