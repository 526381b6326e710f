"""A producer pushes its metrics to brokers that want them (KIP-714), and delivers records whatever becomes of the metrics."""

from __future__ import annotations

import base64
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_kafka_sink.broker import BrokerConfig, ClientMetricsManager, EmbeddedBroker, Fault, FaultInjection
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.compression import Codec
from tests.producer.metrics.telemetry_receiver import (
    GET,
    NEVER_MS,
    OFTEN_MS,
    PUSH,
    Receiver,
    producer_of,
    receiving,
    send,
)
from tests.waiting import DEADLINE_S, HOUR_MS

LOGGER = "spark_kafka_sink.producer.metrics.client_telemetry_sender"


def lines_in(log: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """About client metrics: a broker that is slow to answer has lines of its own."""
    return [record for record in log.records if record.name == LOGGER]


# What is pushed


def test_the_last_push_has_what_the_producer_counted_itself() -> None:
    with receiving(NEVER_MS, delta=False) as (broker, receiver, _):
        with producer_of(broker) as producer:
            send(producer, 5)
            assert producer.client_instance_id(DEADLINE_S) is not None
        (push,) = receiver.pushes
        (pushed,) = receiver.read()
    metrics = producer.metrics()
    assert push.terminating
    assert push.client_id == "spark-kafka-sink"
    for name in ("record-send-total", "batch-size-avg", "record-error-total", "flush-time-ns-total", "buffer-total-bytes"):
        assert pushed.value(name.replace("-", ".")) == metrics["producer-metrics"][name], name
    for name in ("record-send-total", "byte-total"):
        found = pushed.value(f"topic.{name.replace('-', '.')}", topic="topic")
        assert found == metrics["producer-topic-metrics"]["topic"][name] > 0
    (node,) = (name for name in metrics["producer-node-metrics"] if not name.startswith("node--"))
    assert pushed.value("node.request.latency.max", node_id=node) == metrics["producer-node-metrics"][node]["request-latency-max"]


def test_another_subscription_takes_effect() -> None:
    with receiving() as (broker, receiver, manager), producer_of(broker) as producer:
        send(producer)
        receiver.wait_for(1)
        manager.subscribe(("org.apache.kafka.producer.record.send.",))
        before = len(receiver.pushes)
        receiver.wait_for(before + 2)
        assert receiver.read()[-1].names() == {"org.apache.kafka.producer.record.send." + kind for kind in ("rate", "total")}


def test_without_wanted_metrics_nothing_is_pushed() -> None:
    with receiving(metrics=()) as (broker, receiver, manager), producer_of(broker) as producer:
        send(producer)
        with broker.faults.watch(GET) as asked:
            asked.wait(3)  # it asks again and again
        assert (receiver.pushes, broker.faults.seen(PUSH)) == ([], 0)
        manager.subscribe(("*",))
        receiver.wait_for(1)


def test_the_transactional_id_is_pushed_as_the_resource() -> None:
    with receiving() as (broker, receiver, _), producer_of(broker, {"transactional.id": "mine"}) as producer:
        producer.init_transactions()
        receiver.wait_for(1)
        assert receiver.read()[0].resource == {"transactional_id": "mine"}


@pytest.mark.parametrize(("release", "codec"), [("3.7", Codec.NONE), ("3.9", Codec.ZSTD)])
def test_kafka_3_7_gets_no_compressed_push_because_it_does_not_decompress_them(release: str, codec: Codec) -> None:
    receiver, codecs = Receiver(), []
    config = BrokerConfig(client_metrics=ClientMetricsManager(receiver, interval_ms=OFTEN_MS))
    with EmbeddedBroker(config=config, like=release) as broker:
        broker.faults.watch(PUSH, on_request=lambda _, body: codecs.append(body.compression_type))
        with producer_of(broker) as producer:
            send(producer)
            receiver.wait_for(1)
    assert set(codecs) == {codec}


def test_a_large_push_leaves_out_topics_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER), receiving(max_bytes=8_000) as (broker, receiver, _):
        broker.faults.alter(GET, lambda _, body: replace(body, accepted_compression_types=()))
        with producer_of(broker) as producer:
            for future in [producer.send(f"topic-{number}", b"value") for number in range(10)]:
                future.result(DEADLINE_S)
            receiver.wait_for(len(receiver.pushes) + 3)
        assert "org.apache.kafka.producer.record.send.total" in receiver.read()[-1].names()
        assert not [name for name in receiver.read()[-1].names() if ".topic." in name]
    (record,) = lines_in(caplog)
    assert "raise telemetry.max.bytes" in record.message


# Connections


def test_a_connection_that_is_always_full_of_records_has_a_place_for_pushes() -> None:
    """Otherwise records would take each place in flight that an answer makes free."""
    settings: dict[str, object] = {"max.in.flight.requests.per.connection": 1, "linger.ms": 0, "batch.size": 0}
    with receiving() as (broker, receiver, _), producer_of(broker, settings) as producer:
        send(producer)
        broker.faults.cut_after(PUSH, times=1).wait()  # the connection to the bootstrap server
        receiver.wait_for(len(receiver.pushes) + 2)
        assert producer.metrics()["producer-metrics"]["connection-count"] == 1
        with broker.faults.delay(ApiKey.PRODUCE, 20, times=None):
            futures = [producer.send("topic", b"value", partition=0) for _ in range(500)]
            receiver.wait_for(len(receiver.pushes) + 3)
            assert not futures[-1].done()
        for future in futures:
            future.result(DEADLINE_S)


def test_a_receiver_that_hangs_does_not_hold_up_records() -> None:
    """Brokers serve the requests of a connection in order, so pushes use the one to the bootstrap server."""
    with receiving() as (broker, _, _), producer_of(broker) as producer:
        send(producer)
        with broker.faults.hold(PUSH) as held:
            held.wait()
            send(producer, 100)
        assert producer.metrics()["producer-metrics"]["record-retry-total"] == 0


# The client instance id


def test_the_id_is_the_brokers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER), receiving() as (broker, receiver, _), producer_of(broker) as producer:
        send(producer)
        found = producer.client_instance_id(DEADLINE_S)
        receiver.wait_for(3)
        assert {push.client_instance_id for push in receiver.pushes} == {found}
        assert producer.client_instance_id(0) == found
    assert isinstance(found, uuid.UUID)
    (record,) = lines_in(caplog)  # of all subscriptions and pushes
    assert base64.urlsafe_b64encode(found.bytes).decode().rstrip("=") in record.message


def test_no_id_is_given_without_a_receiver_or_if_pushes_are_off() -> None:
    with EmbeddedBroker() as broker, producer_of(broker) as producer:
        send(producer)
        assert producer.client_instance_id(0.01) is None
        with (
            producer_of(broker, {"enable.metrics.push": False}) as other,
            pytest.raises(UsageError, match=r"enable\.metrics\.push"),
        ):
            other.client_instance_id()


# Without pushes


def test_enable_metrics_push_false_asks_for_nothing() -> None:
    with receiving() as (broker, receiver, _):
        with producer_of(broker, {"enable.metrics.push": "false"}) as producer:
            send(producer)
        assert (broker.faults.seen(GET), receiver.pushes) == (0, [])


def test_a_broker_before_3_7_is_not_asked_and_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "spark_kafka_sink.producer"), EmbeddedBroker(like="2.1") as broker:
        with producer_of(broker) as producer:
            send(producer)
            assert producer.client_instance_id(0) is None
        assert (broker.faults.seen(GET), broker.faults.seen(PUSH)) == (0, 0)
    assert lines_in(caplog) == []


def test_without_a_subscription_there_is_one_request_for_each_interval_and_none_at_the_end() -> None:
    with receiving(NEVER_MS, metrics=()) as (broker, _, _):
        with producer_of(broker) as producer:
            send(producer, 100)
            assert producer.client_instance_id(DEADLINE_S) is not None
            send(producer, 100)
        assert (broker.faults.seen(GET), broker.faults.seen(PUSH)) == (1, 0)


def test_a_failed_program_pushes_nothing_last() -> None:
    with receiving(NEVER_MS) as (broker, receiver, _):
        with pytest.raises(ZeroDivisionError), producer_of(broker) as producer:
            send(producer)
            producer.client_instance_id(DEADLINE_S)
            raise ZeroDivisionError
        assert receiver.pushes == []


# The end


def test_a_producer_that_closes_for_idleness_pushes_last() -> None:
    with receiving(NEVER_MS) as (broker, receiver, _):
        producer = producer_of(broker)
        send(producer)
        assert producer.client_instance_id(DEADLINE_S) is not None
        producer.close_when_idle()
        receiver.wait_for(1)
        assert receiver.pushes[0].terminating
        producer.close()


@pytest.mark.slow
def test_close_does_not_wait_for_a_broker_that_does_not_answer_the_last_push() -> None:
    with receiving(NEVER_MS, terminating_ms=2_000) as (broker, _, _):
        producer = producer_of(broker, {"request.timeout.ms": HOUR_MS, "delivery.timeout.ms": 2 * HOUR_MS})
        send(producer)
        producer.client_instance_id(DEADLINE_S)
        with broker.faults.hold(PUSH) as held:
            begun = time.monotonic()
            producer.close()
            took_s = time.monotonic() - begun
            held.wait()  # the broker may look at it only now
            assert held.hits == 1
    assert took_s >= 1.9


def test_close_with_a_timeout_keeps_it_and_raises_nothing() -> None:
    with receiving(NEVER_MS) as (broker, _, _):
        producer = producer_of(broker)
        send(producer)
        producer.client_instance_id(DEADLINE_S)
        with broker.faults.hold(PUSH):
            producer.close(0.1)


# Brokers that refuse, throttle, hang up or lie


INVALID, UNKNOWN = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR
NOT_AFFECTED = "records are not affected"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        *(
            (lambda faults, api=api, code=code: faults.fail(api, code, times=None), (code.name, NOT_AFFECTED))
            for api in (GET, PUSH)
            for code in (INVALID, UNKNOWN)
        ),
        (lambda faults: faults.wrong_correlation_id(GET, times=None), ()),
        (
            lambda faults: faults.alter(GET, lambda _, body: replace(body, client_instance_id=uuid.UUID(int=0)), times=None),
            ("no client instance id",),
        ),
    ],
)
def test_a_lasting_error_ends_the_pushes_with_one_line(
    make: Callable[[FaultInjection], Fault], told: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, LOGGER), receiving() as (broker, receiver, _):
        fault = make(broker.faults)
        with producer_of(broker, {"reconnect.backoff.ms": 1}) as producer:
            send(producer)
            fault.wait()
            send(producer, 3)
        assert (fault.hits, receiver.pushes) == (1, [])
    (record,) = lines_in(caplog)
    assert all(words in record.message for words in told)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 0),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0),
        (ErrorCode.TELEMETRY_TOO_LARGE, 2),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 1),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_after_a_passing_error_the_next_push_has_everything(
    code: ErrorCode, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, LOGGER), receiving() as (broker, receiver, _):
        fault = broker.faults.fail(PUSH, code, times=2)
        with producer_of(broker) as producer:
            send(producer, 3)
            fault.wait(2)
            receiver.wait_for(1)
            send(producer, 3)
        assert receiver.total("record.send.total") == 6
    assert len(lines_in(caplog)) == lines


def test_a_throttled_push_delays_records_no_longer_than_it_says() -> None:
    with receiving() as (broker, receiver, _), producer_of(broker) as producer:
        fault = broker.faults.throttle(PUSH, 50)
        send(producer)
        fault.wait()
        send(producer, 3)
        receiver.wait_for(2)
