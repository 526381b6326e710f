"""A broker is slow when something has waited for it longer than the timeout, and until something can be sent to it."""

from __future__ import annotations

from spark_kafka_sink.producer.partitioners.node_latencies import NodeLatencies


def test_a_node_is_slow_once_something_has_waited_longer_than_the_timeout() -> None:
    latencies = NodeLatencies(100)
    latencies.update(1, 1000, can_send=False)
    latencies.update(1, 1100, can_send=False)
    assert not latencies.is_slow(1)
    latencies.update(1, 1101, can_send=False)
    assert latencies.is_slow(1)
    assert not latencies.is_slow(2)


def test_it_is_no_longer_when_something_can_be_sent() -> None:
    latencies = NodeLatencies(100)
    latencies.update(1, 0, can_send=True)
    latencies.update(1, 500, can_send=False)
    assert latencies.is_slow(1)
    latencies.update(1, 501, can_send=True)
    assert not latencies.is_slow(1)


def test_a_node_for_which_nothing_waits_is_not_slow() -> None:
    latencies = NodeLatencies(100)
    latencies.update(1, 0, can_send=True)
    latencies.update(1, 10_000, can_send=True)
    assert not latencies.is_slow(1)


def test_without_a_timeout_none_is_slow() -> None:
    latencies = NodeLatencies(0)
    latencies.update(1, 0, can_send=False)
    latencies.update(1, 10_000, can_send=False)
    assert not latencies.is_slow(1)
