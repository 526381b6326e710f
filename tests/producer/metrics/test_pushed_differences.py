"""What the differences of all pushes add up to, whatever becomes of a push: never more than a broker was asked to take.

Kafka's broker checks a push before receivers get it (ClientMetricsManager.validatePushRequest). So a rejected push was not taken,
and its differences are pushed again. A push without an answer may have been taken. Its differences are not pushed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.broker import EmbeddedBroker, Fault, FaultInjection
from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.producer.metrics.telemetry_receiver import PUSH, Receiver, producer_of, receiving

Make = Callable[[FaultInjection], Fault]

SOON_MS = 300
RECORDS, ROUNDS = 5, 3


def sums(receiver: Receiver) -> dict[str, float]:
    return {kind: receiver.total(f"record.{kind}.total") for kind in ("send", "retry")}


def counted(producer: Producer) -> dict[str, float]:
    metrics = producer.metrics()["producer-metrics"]
    return {kind: metrics[f"record-{kind}-total"] for kind in ("send", "retry")}


def send(producer: Producer, count: int) -> None:
    """In one request, however slowly this thread makes the records: they linger until the flush."""
    futures = [producer.send("topic", b"value") for _ in range(count)]
    producer.flush()
    for future in futures:
        future.result(0)


def pushed_with(make: Make) -> tuple[dict[str, float], dict[str, float], Fault]:
    """Sends records before, during and after a fault. Returns what was pushed, what the producer counted, and the fault."""
    with receiving() as (broker, receiver, _):
        producer = connected(broker)
        with producer:
            fault = make(broker.faults)
            send(producer, RECORDS)
            fault.wait()
            for _ in range(1, ROUNDS):
                before = len(receiver.pushes)
                send(producer, RECORDS)
                receiver.wait_for(before + 1)
        return sums(receiver), counted(producer), fault


def connected(broker: EmbeddedBroker) -> Producer:
    producer = producer_of(broker, {"linger.ms": 60_000, "reconnect.backoff.ms": 1})
    producer.partitions_for("topic")
    return producer


def test_a_push_that_was_taken_without_a_timely_answer_is_not_pushed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    unanswered: list[Fault] = []
    as_it_is = NetworkClient.send

    def impatient(client: NetworkClient, node_id: int, api: Any, *args: Any, **more: Any) -> None:
        """Only the push without an answer times out soon: records and later pushes have the time that they need."""
        if api.key is PUSH and not (unanswered and unanswered[0].is_over):
            more["timeout_ms"] = SOON_MS
        as_it_is(client, node_id, api, *args, **more)

    def make(faults: FaultInjection) -> Fault:
        unanswered.append(faults.hold(PUSH, applied=True, times=1))
        return unanswered[0]

    monkeypatch.setattr(NetworkClient, "send", impatient)
    pushed, own, _ = pushed_with(make)
    assert pushed == own == {"send": RECORDS * ROUNDS, "retry": 0}


def test_a_push_that_was_taken_on_a_connection_that_was_lost_is_not_pushed_again() -> None:
    pushed, own, _ = pushed_with(lambda faults: faults.cut_after(PUSH, times=1))
    assert pushed == own == {"send": RECORDS * ROUNDS, "retry": 0}


def test_a_push_that_was_lost_before_it_was_taken_is_not_pushed_again_either() -> None:
    pushed, own, _ = pushed_with(lambda faults: faults.cut_before(PUSH, times=1))
    assert own["send"] == RECORDS * ROUNDS
    assert own["send"] - RECORDS <= pushed["send"] <= own["send"]


def test_a_push_that_one_of_several_receivers_rejected_is_the_last_one() -> None:
    """Another receiver may have taken it before the error (ClientTelemetryExporterPlugin.exportMetrics)."""
    with receiving() as (broker, receiver, _):
        with connected(broker) as producer:
            send(producer, RECORDS)
            fault = broker.faults.alter(PUSH, lambda _, body: replace(body, error_code=ErrorCode.INVALID_RECORD))
            fault.wait()
            send(producer, RECORDS)
        assert fault.hits == 1
        assert sums(receiver)["send"] <= counted(producer)["send"]


def test_records_that_are_sent_again_count_again_as_in_java_and_as_retries() -> None:
    pushed, own, _ = pushed_with(lambda faults: faults.cut_after(ApiKey.PRODUCE, times=1))
    assert pushed == own == {"send": RECORDS * (ROUNDS + 1), "retry": RECORDS}
