"""What befalls a connection to real Kafka: resets, silence, slowness, brokers that stand still or are not there yet."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from spark_kafka_sink.errors import BufferExhaustedError, DeliveryError, MetadataTimeoutError
from tests.faults.producing import (
    NumberedStream,
    assert_each_once_in_order,
    failing_scope,
    figure,
    numbers,
    one_by_one,
    producer_on,
)
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import NewTopic, ProxiedKafka, embedded_in_make_test
from tests.kafka.proxy import TcpProxy
from tests.kafka.witness import read_topic
from tests.network.black_hole import black_hole
from tests.producer.inside import meet
from tests.waiting import wait_until


def stored(cluster: Brokers, topic: str, partition: int = 0) -> list[int]:
    """The numbers in a partition's log."""
    read = read_topic(cluster.direct_servers, topic, partitions=[partition])
    return [int(record.value or b"") for record in read]


def struck(proxy: TcpProxy, times: int) -> Callable[[], bool]:
    return lambda: proxy.cuts >= times


@pytest.mark.fault("connection", "reset before the answer to a Produce request")
def test_answers_that_are_lost_after_the_batch_was_stored_make_no_duplicate(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    topic, proxy = new_topic(2, on=proxied_kafka.cluster), proxied_kafka.proxy
    producer = producer_on(proxied_kafka.cluster.bootstrap_servers, batch_size=500)
    with producer, NumberedStream(producer, topic, 2) as stream:
        while stream.report.errors.get("NETWORK_EXCEPTION", 0) < 5:  # a cut may meet another answer, such as that to ApiVersions
            stream.wait_until_more_is_sent()
            before = proxy.cuts
            proxy.cut_after(0, "to_client")
            wait_until(struck(proxy, before + 1), "a cut")
    for partition in range(2):
        assert_each_once_in_order(stored(proxied_kafka.cluster, topic, partition), stream.sent)


@pytest.mark.fault("connection", "reset before the answer to a Produce request")
def test_requests_that_are_cut_short_are_sent_again(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic, proxy = new_topic(1, on=proxied_kafka.cluster), proxied_kafka.proxy
    before = proxy.cuts
    producer = producer_on(proxied_kafka.cluster.bootstrap_servers, batch_size=20_000)
    with producer, NumberedStream(producer, topic, 1, rows=500, width=100) as stream:
        for cut, bytes_first in enumerate((1, 50, 30_000), start=1):
            proxy.cut_after(bytes_first, "to_server")
            wait_until(struck(proxy, before + cut), "a cut")
            stream.wait_for_more(500)
    assert_each_once_in_order(stored(proxied_kafka.cluster, topic), stream.sent)


@pytest.mark.fault("connection", "a slow, rate-limited link")
def test_a_slow_line_keeps_order(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    """50 ms each way and 400 kB/s: five requests are under way and more wait."""
    topic, proxy = new_topic(1, on=proxied_kafka.cluster), proxied_kafka.proxy
    proxy.delay(0.05)
    proxy.rate_limit(400_000, "to_server")
    with producer_on(proxied_kafka.cluster.bootstrap_servers, batch_size=20_000) as producer, producer.scope() as scope:
        for start in range(0, 6000, 500):
            scope.append(topic, numbers(range(start, start + 500), width=100))
        scope.flush(30)
        assert scope.report().retries == 0
    assert_each_once_in_order(stored(proxied_kafka.cluster, topic), 6000)


@pytest.mark.fault("connection", "silence of a broker")
def test_silence_after_the_batch_was_sent_ends_at_the_request_timeout_and_is_retried(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    topic, proxy = new_topic(1, on=proxied_kafka.cluster), proxied_kafka.proxy
    with one_by_one(proxied_kafka.cluster.bootstrap_servers, request_timeout_ms=500) as producer, producer.scope() as scope:
        scope.append(topic, numbers([0]))
        scope.flush(20)
        proxy.black_hole("to_client")
        scope.append(topic, numbers(range(1, 5)))
        wait_until(lambda: scope.report().errors.get("NETWORK_EXCEPTION", 0) >= 1, "the request timeout")
        proxy.heal()
        proxy.cut()  # what was swallowed is missing in the streams of today's connections
        scope.flush(30)
        assert scope.report().records == 5
    assert stored(proxied_kafka.cluster, topic) == [0, 1, 2, 3, 4]


@pytest.mark.fault("connection", "silence of a broker")
def test_silence_for_good_ends_at_delivery_timeout_with_the_last_error(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic, proxy = new_topic(1, on=proxied_kafka.cluster), proxied_kafka.proxy
    settings = {"request_timeout_ms": 1500, "delivery_timeout_ms": 5000}
    with one_by_one(proxied_kafka.cluster.bootstrap_servers, **settings) as producer:
        with failing_scope(producer) as scope:
            scope.append(topic, numbers([0]))
            scope.flush(20)
            proxy.black_hole()
            scope.append(topic, numbers(range(1, 4)))
            wanted = r"delivery\.timeout\.ms.*may have been stored; last error: .*did not respond to PRODUCE within 1,?500 ms"
            with pytest.raises(DeliveryError, match=wanted):
                scope.flush(20)
        proxy.heal()
        proxy.cut()
        with producer.scope() as scope:
            scope.append(topic, numbers([4]))
            scope.flush(20)
    found = stored(proxied_kafka.cluster, topic)
    assert (found[0], found[-1]) == (0, 4)
    assert sorted(set(found)) == found, "twice or out of order"


@pytest.mark.fault("connection", "black hole, bounded by the setup timeout")
def test_an_address_that_swallows_everything_ends_at_max_block_ms() -> None:
    with black_hole() as (host, port):
        begun = time.monotonic()
        settings = {"max_block_ms": 3000, "socket_connection_setup_timeout_ms": 200}
        wanted = pytest.raises(MetadataTimeoutError, match=rf"could not connect to .*{host}:{port} within")
        with producer_on(f"{host}:{port}", **settings) as producer, producer.scope() as scope, wanted:
            scope.append("t", numbers([0]))
        assert time.monotonic() - begun >= 1


@pytest.mark.fault("connection", "black hole, bounded by the setup timeout")
def test_a_dead_first_bootstrap_server_costs_only_its_setup_timeout(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=proxied_kafka.cluster)
    with black_hole() as (host, port):
        servers = f"{host}:{port},127.0.0.1:1,{proxied_kafka.cluster.bootstrap_servers}"
        with producer_on(servers, socket_connection_setup_timeout_ms=300) as producer, producer.scope() as scope:
            scope.append(topic, numbers([0]))
            scope.flush(20)
    assert stored(proxied_kafka.cluster, topic) == [0]


@pytest.mark.fault("connection", "refused")
def test_brokers_that_are_not_there_yet_are_waited_for(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic, proxy = new_topic(1, on=proxied_kafka.cluster), proxied_kafka.proxy
    proxy.refuse()
    proxy.cut()
    with producer_on(proxied_kafka.cluster.bootstrap_servers, max_block_ms=30_000) as producer, producer.scope() as scope:
        failed: list[BaseException] = []

        def append() -> None:
            try:
                scope.append(topic, numbers([0]))
            except BaseException as error:
                failed.append(error)

        waiting = threading.Thread(target=append)
        waiting.start()
        wait_until(lambda: figure(producer, "connection-close-total") > 0, "a refused connection")
        proxy.heal()
        waiting.join(30)
        assert failed == []
        scope.flush(20)
    assert stored(proxied_kafka.cluster, topic) == [0]


@pytest.mark.fault("memory", "a broker is paused: memory stays bounded")
@embedded_in_make_test("three quarters of a minute; test_sequences.py has a broker of real Kafka that stands still")
def test_a_broker_that_stands_still_bounds_memory_and_appends_and_then_gets_everything(
    kafka3: Brokers, new_topic: NewTopic
) -> None:
    """SIGSTOP all: nothing answers, nothing refuses, nobody else takes over."""
    topic, memory = new_topic(1, on=kafka3), 4 << 20
    process, appended = psutil.Process(), 0
    producer = producer_on(kafka3.bootstrap_servers, buffer_memory=memory, max_block_ms=1000, batch_size=100_000)
    with producer, producer.scope() as scope:
        meet(producer, topic)
        scope.append(topic, numbers([0], width=1000))
        scope.flush(20)
        for node in kafka3.broker_ids:
            kafka3.pause(node)
        before = process.memory_info().rss
        begun = time.monotonic()
        with pytest.raises(BufferExhaustedError, match=r"buffer\.memory: timed out after \d+ ms waiting for \d+ bytes"):
            for appended in range(1, 100):
                scope.append(topic, numbers(range(appended * 100, appended * 100 + 100), width=1000))
        assert time.monotonic() - begun >= 1
        assert 3_500_000 < appended * 100_000 < memory + 100_000
        assert process.memory_info().rss - before < 2 * memory + (16 << 20)
        for node in kafka3.broker_ids:
            kafka3.resume(node)
        scope.flush(60)
    assert stored(kafka3, topic) == [0, *range(100, appended * 100)]


def test_without_idempotence_one_in_flight_keeps_order_and_may_repeat(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=proxied_kafka.cluster)
    settings = {"enable_idempotence": "false", "acks": "1", "max_in_flight_requests_per_connection": 1, "batch_size": 500}
    producer = producer_on(proxied_kafka.cluster.bootstrap_servers, **settings)
    with producer, NumberedStream(producer, topic, 1) as stream:
        for _ in range(5):
            stream.wait_for_more(200)
            proxied_kafka.proxy.cut()
    assert_each_once_in_order(list(dict.fromkeys(stored(proxied_kafka.cluster, topic))), stream.sent)


# A producer's process stands still for longer than the request timeout, as a virtual machine does that is moved


REQUEST_TIMEOUT_MS = 2000
PAUSE_S = 2.5
COUNT = 600

PROGRAM = f"""
import sys
import pyarrow
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
servers, topic = sys.argv[1:]
settings = {{"bootstrap.servers": servers, "request.timeout.ms": {REQUEST_TIMEOUT_MS}, "batch.size": 500,
    "retry.backoff.ms": 5, "retry.backoff.max.ms": 20}}
with Producer(settings) as producer, producer.scope() as scope:
    for begin in range(0, {COUNT}, 10):
        values = [b"%d" % value for value in range(begin, begin + 10)]
        scope.append(topic, RecordColumns(10, value=pyarrow.array(values, pyarrow.binary())))
        if begin == 100:
            print("under way", flush=True)
    scope.flush(60)
    print(scope.report().records, flush=True)
"""


@pytest.mark.fault("connection", "the client is paused for longer than the request timeout")
@pytest.mark.slow
def test_a_client_that_was_paused_sends_the_rest_once_and_in_order(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=proxied_kafka.cluster)
    proxied_kafka.proxy.delay(0.1)  # so that requests are in flight whenever it is
    command = [sys.executable, "-c", PROGRAM, proxied_kafka.cluster.bootstrap_servers, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "under way\n"
            program.send_signal(signal.SIGSTOP)
            with suppress(subprocess.TimeoutExpired):
                program.wait(PAUSE_S)
            program.send_signal(signal.SIGCONT)
            assert program.stdout.readline() == f"{COUNT}\n"
            assert program.wait(30) == 0
        finally:
            program.kill()
    read = read_topic(proxied_kafka.cluster.direct_servers, topic)
    assert_each_once_in_order([int(record.value or b"") for record in read], COUNT)
