"""Real brokers with a telemetry receiver take what a producer pushes, and Kafka's own classes read it as it was meant."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import text_format

from spark_kafka_sink.producer.producer import Producer
from tests.kafka.telemetry import TelemetryKafka, telemetry_kafka
from tests.kafka.versions import DEFAULT, NEWEST
from tests.producer.metrics.otlp_witness import metrics_data_class, read

pytestmark = pytest.mark.kafka

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
INTERVAL_MS, DEADLINE_S = 1_000, 30.0
WHOLE = "a broker of its own; test_client_telemetry.py finds most of it on the embedded broker"


@pytest.fixture(
    scope="module",
    params=[pytest.param(version, marks=pytest.mark.whole(WHOLE)) for version in ("3.7", DEFAULT, NEWEST)],
)
def kafka_with_receiver(request: pytest.FixtureRequest) -> Iterator[TelemetryKafka]:
    with telemetry_kafka(request.param) as kafka:
        yield kafka


def test_the_counts_of_all_pushes_are_those_of_the_producer(kafka_with_receiver: TelemetryKafka) -> None:
    kafka, client_id = kafka_with_receiver, "counted"
    kafka.cluster.create_topic("counted", 2)
    kafka.subscribe("counted", metrics="org.apache.kafka.producer.", interval_ms=INTERVAL_MS, client_id=client_id)
    settings = {"bootstrap.servers": kafka.cluster.bootstrap_servers, "client.id": client_id, "transactional.id": "telemetry"}
    with Producer(settings) as producer:
        producer.init_transactions()
        for sent in range(1, 3):
            producer.begin_transaction()
            for number in range(100):
                producer.send("counted", f"value {number}", partition=number % 2)
            producer.commit_transaction()
            kafka.wait_for_pushes(client_id, sent)
        instance_id = producer.client_instance_id(DEADLINE_S)
    assert instance_id is not None
    pushes = kafka.wait_for_pushes(client_id, 3)
    metrics = producer.metrics()

    assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert {push.instance_id for push in pushes} == {base64.urlsafe_b64encode(instance_id.bytes).decode().rstrip("=")}
    pushed = [read(push.data) for push in pushes]
    assert all(each.resource == {"transactional_id": "telemetry"} for each in pushed)
    for name in ("record-send-total", "record-error-total", "txn-commit-time-ns-total", "txn-begin-time-ns-total"):
        found = sum(each.value(name.replace("-", ".")) for each in pushed)
        assert found == pytest.approx(metrics["producer-metrics"][name], rel=1e-12), name
    of_topic = [point for each in pushed for point in each.points if point.name.endswith("topic.byte.total")]
    assert {point.attributes["topic"] for point in of_topic} == {"counted"}
    assert sum(point.value for point in of_topic) == metrics["producer-topic-metrics"]["counted"]["byte-total"]
    of_node = [point for each in pushed for point in each.points if point.name.endswith("node.request.latency.max")]
    assert {point.attributes["node_id"] for point in of_node} == set(metrics["producer-node-metrics"])
    assert metrics["producer-metrics"]["record-send-total"] == 200


def test_kafkas_own_classes_read_the_same(kafka_with_receiver: TelemetryKafka) -> None:
    kafka, client_id = kafka_with_receiver, "read"
    kafka.cluster.create_topic("read")
    kafka.subscribe("read", metrics="*", interval_ms=INTERVAL_MS, client_id=client_id)
    with Producer({"bootstrap.servers": kafka.cluster.bootstrap_servers, "client.id": client_id}) as producer:
        producer.send("read", "value").result(DEADLINE_S)
        kafka.wait_for_pushes(client_id, 1)
    for push in kafka.wait_for_pushes(client_id, 2):
        kafkas = text_format.Parse(push.text, metrics_data_class()())
        assert kafkas.SerializeToString() == push.data
        assert push.content_type == "OTLP"


def test_only_wanted_metrics_arrive_and_a_changed_subscription_is_followed(kafka_with_receiver: TelemetryKafka) -> None:
    kafka, client_id = kafka_with_receiver, "choosy"
    kafka.cluster.create_topic("choosy")
    kafka.subscribe("choosy", metrics="org.apache.kafka.producer.record.send.", interval_ms=INTERVAL_MS, client_id=client_id)
    with Producer({"bootstrap.servers": kafka.cluster.bootstrap_servers, "client.id": client_id}) as producer:
        producer.send("choosy", "value").result(DEADLINE_S)
        (first, *_) = kafka.wait_for_pushes(client_id, 1)
        kafka.subscribe("choosy", metrics="org.apache.kafka.producer.batch.", interval_ms=INTERVAL_MS, client_id=client_id)
        before = len(kafka.pushes(client_id))
        kafka.wait_for_pushes(client_id, before + 2)
    assert {name.split(".")[4] for name in read(first.data).names()} == {"record"}
    assert {name.split(".")[4] for name in read(kafka.pushes(client_id)[-1].data).names()} == {"batch"}


def test_the_command_in_the_docs_subscribes_to_this_sinks_producers(kafka_with_receiver: TelemetryKafka) -> None:
    kafka, client_id = kafka_with_receiver, "documented"
    kafka.cluster.create_topic("documented")
    text = PAGE.read_text().replace("\\\n", " ")
    subscribe, describe, delete = re.findall(r"^bin/kafka-client-metrics\.sh .*$", text, re.MULTILINE)
    kafka.run(subscribe)
    kafka.run(describe)
    with Producer({"bootstrap.servers": kafka.cluster.bootstrap_servers, "client.id": client_id}) as producer:
        producer.send("documented", "value").result(DEADLINE_S)
        assert producer.client_instance_id(DEADLINE_S) is not None
    (push,) = kafka.wait_for_pushes(client_id, 1)
    assert push.terminating
    assert read(push.data).value("record.send.total") == 1
    kafka.run(delete)
