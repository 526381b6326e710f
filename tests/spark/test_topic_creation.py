"""Options `topic.create.*`: the driver creates a missing topic."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

import spark_kafka_sink as sks
from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.broker.acl import parse_acls
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.topics import TOPIC, configs_of
from spark_kafka_sink.errors import AuthorizationError, OptionError
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark.plan.first_contact import create_missing_topic
from tests.kafka.kafka import Kafka

NO_AUTO_CREATION = BrokerConfig(auto_create_topics_enable=False)
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
THREE = {"topic.create.partitions": "3"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=NO_AUTO_CREATION) as made:
        yield made


def settings(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    given = {name.replace("__", "."): value for name, value in more.items()}
    return {**{f"kafka.{name}": value for name, value in broker.client_settings.items()}, "topic": "events", **given}


def created(options: dict[str, str]) -> None:
    create_missing_topic(sink_options(options))


def config_of(servers: str, topic: str, name: str) -> str | None:
    with ClusterClient(sink_options({"kafka.bootstrap.servers": servers}).producer) as client:
        return configs_of(client, TOPIC, topic, time.monotonic() + 30, only=[name])[name].value


# Options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic.create.partitions", "0"),
        ("topic.create.partitions", "many"),
        ("topic.create.partitions", ""),
        ("topic.create.replication.factor", "-1"),
        ("topic.create.replication.factor", "32768"),
    ],
)
def test_a_wrong_number_names_its_option(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=rf"option {name}: '{value}' is not a whole number from 1 to") as caught:
        sink_options({**SERVERS, "topic": "events", name: value})
    assert caught.value.facts["option"] == name


@pytest.mark.parametrize("name", ["topic.create.partitions", "topic.create.config.retention.ms"])
def test_the_topic_must_be_an_option(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: needs the option topic"):
        sink_options({**SERVERS, name: "1"})


# What is created


def test_a_missing_topic_is_created_as_the_options_say(kafka: Kafka) -> None:
    topic = f"test-{os.getpid()}-{uuid.uuid4()}"
    options = {"topic.create.partitions": "5", "topic.create.replication.factor": "1", "topic.create.config.retention.ms": "7000"}
    created({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **options})
    try:
        assert len(kafka.metadata(topic).topics[topic].partitions) == 5
        assert config_of(kafka.bootstrap_servers, topic, "retention.ms") == "7000"
    finally:
        kafka.delete_topic(topic)


def test_what_is_not_set_is_left_to_the_brokers(broker: EmbeddedBroker) -> None:
    created(settings(broker, topic__create__config__retention__ms="7000"))
    assert len(broker.cluster.image.topics["events"].partitions) == 1


def test_without_the_options_no_topic_is_created(broker: EmbeddedBroker) -> None:
    created(settings(broker))
    assert "events" not in broker.cluster.image.topics


def test_an_existing_topic_is_left_as_it_is(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topic("events", 2)
    with caplog.at_level(logging.WARNING):
        created(settings(broker, **THREE))
    assert len(broker.cluster.image.topics["events"].partitions) == 2
    assert "topic events exists with 2 partitions, fewer than topic.create.partitions=3" in caplog.text


def test_two_drivers_may_create_it_at_a_time(broker: EmbeddedBroker) -> None:
    """Both see that the topic is missing, because neither may create it before both have asked."""
    failures: list[Exception] = []

    def drive(partitions: str) -> None:
        try:
            created(settings(broker, topic__create__partitions=partitions))
        except Exception as error:
            failures.append(error)

    drivers = [threading.Thread(target=drive, args=(partitions,)) for partitions in ("3", "4")]
    with broker.faults.hold(ApiKey.CREATE_TOPICS, times=2) as held:
        for driver in drivers:
            driver.start()
        held.wait(2)
    for driver in drivers:
        driver.join(30)
    assert failures == []
    assert len(broker.cluster.image.topics["events"].partitions) in (3, 4)


def test_a_topic_that_another_driver_has_just_created_is_fine(broker: EmbeddedBroker) -> None:
    broker.create_topic("events", 3)
    broker.faults.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, topic="events")
    created(settings(broker, **THREE))
    assert broker.faults.seen(ApiKey.CREATE_TOPICS) == 0


# Refusals


def test_too_few_brokers_for_the_replicas_names_the_option(broker: EmbeddedBroker) -> None:
    with pytest.raises(OptionError, match=r"option topic\.create\.replication\.factor: topic 'events' was not created"):
        created(settings(broker, topic__create__replication__factor="3"))


@pytest.mark.parametrize("name", ["retention.ms", "no.such.config"])
def test_a_wrong_config_names_its_option(kafka: Kafka, name: str) -> None:
    options = {f"topic.create.config.{name}": "x", "topic.create.config.min.insync.replicas": "1"}
    with pytest.raises(OptionError) as caught:
        created({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": f"test-{uuid.uuid4()}", **options})
    assert caught.value.facts["option"] == f"topic.create.config.{name}"


def test_a_missing_right_is_named_with_the_line_that_grants_it() -> None:
    config = BrokerConfig(sasl_users={"sink": "word"}, acls=[])
    with EmbeddedBroker(config=config) as broker:
        broker.cluster.add_acls(parse_acls("--allow-principal User:sink --operation Describe --topic events"))
        with pytest.raises(AuthorizationError, match="topic 'events' was not created") as caught:
            created(settings(broker, **THREE))
        assert "User:sink is not authorized for Create on topic events" in str(caught.value)
        broker.cluster.add_acls(parse_acls(caught.value.facts["acl"].partition(" --add ")[2]))
        created(settings(broker, **THREE))
        assert len(broker.cluster.image.topics["events"].partitions) == 3


def test_a_writer_of_partitions_creates_the_topic_before_it_is_sent_to_tasks(broker: EmbeddedBroker) -> None:
    sks.partition_writer(settings(broker, **THREE))
    assert len(broker.cluster.image.topics["events"].partitions) == 3
