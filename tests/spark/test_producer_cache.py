from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_kafka_sink.config import ProducerConfig, producer_config
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.spark import producer_cache
from spark_kafka_sink.spark.producer_cache import ProducerCache
from tests.kafka.ports import free_ports


@pytest.fixture
def config() -> ProducerConfig:
    """Of brokers that nobody reaches: a producer waits for them, and needs none to be opened and closed."""
    return producer_config({"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "max.block.ms": 100})


@pytest.fixture
def cache() -> Iterator[ProducerCache]:
    made = ProducerCache()
    yield made
    made.close()


def producer_of(cache: ProducerCache, config: ProducerConfig) -> object:
    with cache.scope(config):
        return cache._producers[config, False]


def test_equal_settings_share_a_producer_over_tasks(cache: ProducerCache, config: ProducerConfig) -> None:
    assert producer_of(cache, config) is producer_of(cache, replace(config))


def test_other_settings_get_another_producer(cache: ProducerCache, config: ProducerConfig) -> None:
    assert producer_of(cache, config) is not producer_of(cache, replace(config, linger_ms=77))


def test_a_closed_producer_is_replaced(cache: ProducerCache, config: ProducerConfig) -> None:
    first = producer_of(cache, config)
    cache._producers[config, False].close(1)
    assert producer_of(cache, config) is not first


def test_an_idle_producer_closes_itself_and_is_replaced(
    cache: ProducerCache, config: ProducerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_cache, "IDLE_CLOSE_MS", 20)
    with cache.scope(config):
        first = cache._producers[config, False]
    first._sender.join(10)
    assert first.closed
    assert producer_of(cache, config) is not first


def test_a_failed_producer_leaves_at_once_and_another_takes_its_place(
    cache: ProducerCache, config: ProducerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cache.scope(config):
        first = cache._producers[config, False]
    monkeypatch.setattr(type(first), "failed", property(lambda producer: BrokerError("fatal") if producer is first else None))
    assert producer_of(cache, config) is not first
    assert first not in cache._producers.values()
    first.close(1)


def test_a_producer_that_closes_between_look_up_and_use_is_replaced(cache: ProducerCache, config: ProducerConfig) -> None:
    first = producer_of(cache, config)
    usable = cache._usable

    def close_after_look_up(wanted: tuple[ProducerConfig, bool]) -> object:
        producer = usable(wanted)
        if producer is first:
            producer.close(1)
        return producer

    cache._usable = close_after_look_up  # type: ignore[method-assign, assignment]
    assert producer_of(cache, config) is not first


def test_close_leaves_no_thread_behind(config: ProducerConfig) -> None:
    before = set(threading.enumerate())

    def started() -> list[str]:
        names = (thread.name for thread in set(threading.enumerate()) - before)
        return [name for name in names if name.startswith("kafka-producer-network-thread")]

    cache = ProducerCache()
    producer_of(cache, config)
    assert started()
    cache.close()
    assert not started()


def test_a_forked_child_has_an_empty_cache_and_a_free_lock(cache: ProducerCache, config: ProducerConfig) -> None:
    producer_of(cache, config)
    with cache._lock:
        child = os.fork()
        if child == 0:
            ok = not cache._producers and cache._lock.acquire(timeout=5)
            os._exit(0 if ok else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
