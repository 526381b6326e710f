from __future__ import annotations

import multiprocessing
import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pyspark import Accumulator, cloudpickle
from pyspark.accumulators import INT_ACCUMULATOR_PARAM

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.producer import producer as producer_module
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.sender import sender
from spark_kafka_sink.producer.serializers.serializer import Serializer
from spark_kafka_sink.spark.task.producer_cache import IDLE_CLOSE_MS, MOST_PRODUCERS, ProducerCache, ProducerKey
from tests.kafka.ports import free_ports
from tests.producer.inside import lifecycle_of, wake_sender
from tests.waiting import wait_until


@pytest.fixture
def config() -> ProducerConfig:
    """Of brokers that nobody reaches: a producer waits for them, and needs none to be opened and closed."""
    return producer_config({"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "max.block.ms": 100})


@pytest.fixture
def cache() -> Iterator[ProducerCache]:
    made = ProducerCache()
    yield made
    made.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    """The producers that caches make, in their order."""
    producers: list[Producer] = []

    class Noted(Producer):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            producers.append(self)

    monkeypatch.setattr(producer_module, "Producer", Noted)
    return producers


def network_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("kafka-producer-network-thread")}


def open_and_close(cache: ProducerCache, *configs: ProducerConfig) -> None:
    for config in configs:
        with cache.scope(config):
            pass


def test_an_idle_producer_closes_itself_and_is_replaced(
    cache: ProducerCache, config: ProducerConfig, made: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_and_close(cache, config)
    with monkeypatch.context() as later:
        later.setattr(sender, "monotonic_ms", lambda: monotonic_ms() + IDLE_CLOSE_MS)
        wake_sender(made[0])
        wait_until(lambda: not lifecycle_of(made[0]).is_running, "the end of the idle producer")
    open_and_close(cache, config)
    assert len(made) == 2


def test_a_failed_producer_leaves_at_once_and_another_takes_its_place(
    cache: ProducerCache, config: ProducerConfig, made: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_and_close(cache, config)
    first = made[0]
    monkeypatch.setattr(Producer, "failed", property(lambda producer: BrokerError("fatal") if producer is first else None))
    open_and_close(cache, config, config)
    assert len(made) == 2
    first.close(1)


def test_a_producer_that_closes_between_look_up_and_use_is_replaced(
    cache: ProducerCache, config: ProducerConfig, made: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_and_close(cache, config)
    scope = Producer.scope

    def close_first(producer: Producer, *, keeps_rejected: bool) -> SendScope:
        if producer is made[0]:
            producer.close(1)
        return scope(producer, keeps_rejected=keeps_rejected)

    monkeypatch.setattr(Producer, "scope", close_first)
    open_and_close(cache, config)
    assert len(made) == 2


def test_close_leaves_no_thread_behind(config: ProducerConfig) -> None:
    before = network_threads()
    cache = ProducerCache()
    open_and_close(cache, config)
    assert network_threads() - before
    cache.close()
    assert not network_threads() - before


def test_a_forked_child_has_an_empty_cache_and_a_free_lock(
    cache: ProducerCache, config: ProducerConfig, made: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_and_close(cache, config)
    in_lock, go_on = threading.Event(), threading.Event()

    def waiting(*arguments: Any, **named: Any) -> Producer:
        in_lock.set()
        go_on.wait(60)
        return Producer(*arguments, **named)

    noted = producer_module.Producer
    monkeypatch.setattr(producer_module, "Producer", waiting)
    other = threading.Thread(target=open_and_close, args=(cache, replace(config, linger_ms=77)))
    other.start()
    assert in_lock.wait(10)
    monkeypatch.setattr(producer_module, "Producer", noted)

    def in_child() -> None:
        open_and_close(cache, config)
        cache.close(1)
        sys.exit(len(made) != 2)

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(20)
    if child.is_alive():  # it waits for the lock
        child.kill()
        child.join()
    go_on.set()
    other.join()
    assert child.exitcode == 0


def producers_for(cache: ProducerCache, configs: Iterable[ProducerConfig]) -> int:
    """How many producers the cache makes for a task with each, by their threads."""
    before = network_threads()
    open_and_close(cache, *configs)
    return len(network_threads() - before)


def sent(config: ProducerConfig) -> ProducerConfig:
    """As a task gets it: Spark pickles what a function holds by value, so each task has an object of its own."""
    copy: ProducerConfig = pickle.loads(cloudpickle.dumps(config))  # type: ignore[no-untyped-call]
    return copy


class UpperCase:
    """Without __eq__; pickled by reference to its class, with its state."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.calls = 0

    def __call__(self, value: Any) -> bytes:
        self.calls += 1
        return f"{value}{self.suffix}".upper().encode()


def join(suffix: str, value: Any) -> bytes:
    return f"{value}{suffix}".encode()


def closure(suffix: str) -> Callable[[Any], bytes]:
    return lambda value: f"{value}{suffix}".encode()


def local_class(suffix: str) -> object:
    class Local(Serializer):
        def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
            return f"{value}{suffix}".encode()

    return Local()


MAKERS = [closure, lambda suffix: partial(join, suffix), UpperCase, lambda suffix: UpperCase(suffix).__call__, local_class]


@pytest.mark.parametrize("field", ["key_serializer", "value_serializer"])
@pytest.mark.parametrize("make", MAKERS)
def test_a_serializer_that_spark_pickles_for_each_task_makes_one_producer(
    cache: ProducerCache, config: ProducerConfig, make: Callable[[str], object], field: str
) -> None:
    options = replace(config, **{field: make("x")})  # type: ignore[arg-type]
    assert producers_for(cache, [sent(options) for _ in range(5)]) == 1


@pytest.mark.parametrize("make", MAKERS)
def test_what_captures_another_value_is_another_serializer(
    cache: ProducerCache, config: ProducerConfig, make: Callable[[str], object]
) -> None:
    options = [replace(config, value_serializer=make(suffix)) for suffix in ("x", "y")]
    assert producers_for(cache, [sent(each) for each in options * 2]) == 2


def test_a_serializer_that_has_changed_in_use_stays_the_one_that_was_sent(cache: ProducerCache, config: ProducerConfig) -> None:
    first, second = (sent(replace(config, value_serializer=UpperCase("x"))) for _ in range(2))
    with cache.scope(first):
        first.value_serializer("row")  # type: ignore[operator]
    assert producers_for(cache, [second]) == 0


def test_interceptors_and_partitioners_are_compared_in_the_same_way(cache: ProducerCache, config: ProducerConfig) -> None:
    def options(name: str) -> ProducerConfig:
        return replace(config, interceptor_classes=(Named(name), "tests.spark.task.test_producer_cache.Named"))

    assert producers_for(cache, [sent(options("a")), sent(options("a")), sent(options("b"))]) == 2


class Named(ProducerInterceptor):
    def __init__(self, name: str = "") -> None:
        self.name = name


class Unpicklable:
    def __call__(self, value: Any) -> bytes:
        return b""

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


def test_what_cannot_be_pickled_is_equal_to_itself_alone(cache: ProducerCache, config: ProducerConfig) -> None:
    one, other = (replace(config, value_serializer=Unpicklable()) for _ in range(2))
    assert producers_for(cache, [one, other, one]) == 2


def test_an_accumulator_is_a_tasks_own(cache: ProducerCache, config: ProducerConfig) -> None:
    """Spark fetches the sum of the one that the task was sent: adding to an earlier task's would be lost."""
    counter = Accumulator(10**9, 0, INT_ACCUMULATOR_PARAM)

    def counted(value: Any) -> bytes:
        counter.add(1)
        return b""

    options = replace(config, value_serializer=counted)
    assert producers_for(cache, [sent(options) for _ in range(3)]) == 3


def test_what_a_large_object_is_found_by_is_small(config: ProducerConfig) -> None:
    """A worker keeps it for as long as the producer, beside the object itself: a model may have hundreds of MB."""
    options = replace(config, value_serializer=UpperCase("x" * 10_000_000))
    tracemalloc.start()
    try:
        key = ProducerKey.of(options, False)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
    assert key == ProducerKey.of(sent(options), False)


def test_of_many_settings_the_producers_that_were_not_used_for_longest_end(cache: ProducerCache, config: ProducerConfig) -> None:
    """As soon as no task uses them: a program that publishes with another function each time must not gather threads."""
    others = [replace(config, linger_ms=number) for number in range(MOST_PRODUCERS + 2)]
    started: list[threading.Thread] = []

    def use(settings: ProducerConfig, stack: ExitStack) -> SendScope:
        """Notes the thread at once: the one before the last may have ended by then."""
        before = network_threads()
        scope = stack.enter_context(cache.scope(settings))
        started.extend(network_threads() - before)
        return scope

    with ExitStack() as task:
        in_use = use(others[0], task)
        for each in others[1:]:
            with ExitStack() as other_task:
                use(each, other_task)
        assert len(started) == len(others)
        started[1].join(10)
        assert [thread.is_alive() for thread in started[:3]] == [True, False, True]
        in_use.flush()
    started[0].join(10)
    assert len([thread for thread in started if thread.is_alive()]) <= MOST_PRODUCERS
