"""Checks of rights: what the crosses say to grant is enough."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.broker.acl import parse_acls
from spark_kafka_sink.spark.driver.check import CheckReport, check
from spark_kafka_sink.spark.driver.checks.report import Status
from tests.kafka.acls import KafkaWithAcls
from tests.spark.driver.checks.reading import EXACTLY_ONCE, line, lines, settings

USERS = {"sink": "word"}


@pytest.fixture
def strict() -> Iterator[EmbeddedBroker]:
    """Its only user has no rights."""
    config = BrokerConfig(sasl_users=USERS, acls=[], transaction_state_log_num_partitions=2, auto_create_topics_enable=False)
    with EmbeddedBroker(config=config) as made:
        made.create_topic("events")
        yield made


def granted(broker: EmbeddedBroker, options: Mapping[str, str]) -> CheckReport:
    """Does what the crosses say until there are none, as an administrator would."""
    for _ in range(10):
        report = check(options)
        if report.ok:
            return report
        for cross in report.failed:
            command = cross.to_do.partition("`")[2].partition("`")[0]
            assert command.startswith("kafka-acls "), cross
            broker.cluster.add_acls(parse_acls(command.partition(" --add ")[2]))
    raise AssertionError(report)


def test_with_the_acls_of_the_crosses_writing_is_allowed(strict: EmbeddedBroker) -> None:
    report = granted(strict, settings(strict))
    assert "Write" in lines(report, "rights")[0].text
    assert line(report, "topic configs").status is Status.NOT_CHECKED
    assert "DescribeConfigs" in line(report, "topic configs").text


def test_with_the_acls_of_the_crosses_exactly_once_is_allowed(strict: EmbeddedBroker) -> None:
    report = granted(strict, settings(strict, **EXACTLY_ONCE))
    assert "the first commit creates it" in line(report, "commit log").text
    assert any("spark-kafka-sink.*" in each.text for each in lines(report, "rights"))


def test_describe_alone_is_not_enough(strict: EmbeddedBroker) -> None:
    strict.cluster.add_acls(parse_acls("--allow-principal User:sink --operation Describe --topic events"))
    cross = next(each for each in check(settings(strict)).failed if "events" in each.text)
    assert cross.text == "User:sink is not authorized for Write on topic 'events'"
    assert "--operation Write --topic events" in cross.to_do


def test_whether_a_client_may_write_to_a_topic_that_does_not_exist_is_not_checked(strict: EmbeddedBroker) -> None:
    """It has a producer id through its right to write to another topic."""
    granted = "--allow-principal User:sink --operation"
    strict.cluster.add_acls(parse_acls(f"{granted} Write --topic other"))
    strict.cluster.add_acls(parse_acls(f"{granted} Create --operation Describe --topic new"))
    report = check(settings(strict, topic="new", **{"topic.create.partitions": "3"}))
    assert report.ok, str(report)
    unknown, producer_id = lines(report, "rights")
    assert unknown.status is Status.NOT_CHECKED
    assert "'new'" in unknown.text
    assert "write" not in producer_id.text


def test_brokers_that_create_topics_do_not_do_it_for_a_client_without_the_right() -> None:
    with EmbeddedBroker(config=BrokerConfig(sasl_users=USERS, acls=[])) as made:
        granted = "--allow-principal User:sink --operation"
        made.cluster.add_acls(parse_acls(f"{granted} DescribeConfigs --operation IdempotentWrite --cluster"))
        made.cluster.add_acls(parse_acls(f"{granted} Describe --operation Write --topic new"))
        cross = line(check(settings(made, topic="new")), "topic")
        assert cross.status is Status.FAILED
        assert "Create" in cross.text
        assert "--operation Create" in cross.to_do
        command = cross.to_do.partition("`")[2].partition("`")[0]
        made.cluster.add_acls(parse_acls(command.partition(" --add ")[2]))
        assert line(check(settings(made, topic="new")), "topic").status is Status.OK


def test_a_missing_topic_is_a_cross_where_brokers_do_not_say_whether_they_create_it() -> None:
    with EmbeddedBroker(config=BrokerConfig(sasl_users=USERS, acls=[])) as made:
        granted = "--allow-principal User:sink --operation"
        made.cluster.add_acls(parse_acls(f"{granted} IdempotentWrite --cluster"))
        made.cluster.add_acls(parse_acls(f"{granted} Describe --operation Write --topic new"))
        cross = line(check(settings(made, topic="new")), "topic")
        made.cluster.add_acls(parse_acls(f"{granted} Create --topic new"))
        unknown = line(check(settings(made, topic="new")), "topic")
    assert cross.status is Status.FAILED, "brokers create topics only for clients that may create them"
    assert cross.text == "topic 'new' does not exist"
    assert unknown.status is Status.FAILED
    start = "topic 'new' does not exist; whether the brokers create it with the first record is not known: [AUTHORIZATION] "
    assert unknown.text.startswith(start)
    assert unknown.to_do == cross.to_do


# On real Kafka


def test_missing_rights_are_crosses_on_real_kafka(kafka_with_acls: KafkaWithAcls) -> None:
    """Rights are known without a write: those on topics from metadata, those on ids from a request that brokers refuse anyway."""
    name = f"check-{uuid.uuid4()}"
    kafka_with_acls.create_topic(name, 1)
    options = {"kafka.bootstrap.servers": kafka_with_acls.bootstrap_servers, "topic": name, **EXACTLY_ONCE}
    kafka_with_acls.deny(ResourceType.TOPIC, name, AclOperation.WRITE)
    kafka_with_acls.deny(ResourceType.TRANSACTIONAL_ID, "spark-kafka-sink.", AclOperation.WRITE, prefixed=True)
    report = check(options, timeout=30)
    topic, ids = report.failed
    assert topic.text == f"User:ANONYMOUS is not authorized for Write on topic {name!r}"
    assert f"--operation Write --topic {name}" in topic.to_do
    assert "is not authorized for Write on transactional ids spark-kafka-sink.*" in ids.text
    assert "--transactional-id spark-kafka-sink. --resource-pattern-type prefixed" in ids.to_do
    assert "__spark_kafka_sink_commits" not in kafka_with_acls.metadata().topics
