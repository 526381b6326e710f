"""Checks of the topic: whether it exists, its partitions and its configs."""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_sink.broker import ApiKey, BrokerConfig, EmbeddedBroker, ErrorCode
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.spark.driver.check import check
from spark_kafka_sink.spark.driver.checks.report import Status
from tests.spark.driver.checks.reading import line, settings


def _without_topic(_request: MetadataRequest, response: MetadataResponse) -> MetadataResponse:
    (topic,) = response.topics
    return replace(response, topics=[replace(topic, error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), partitions=[])])


def test_a_missing_topic_is_a_cross_with_the_nearest_name(broker: EmbeddedBroker) -> None:
    cross = line(check(settings(broker, topic="event")), "topic")
    assert cross.status is Status.FAILED
    assert cross.text == "topic 'event' does not exist; did you mean events?"
    assert "spark-kafka-sink topics create event " in cross.to_do


def test_a_new_topic_that_the_first_broker_has_not_heard_of_yet_is_a_tick() -> None:
    with EmbeddedBroker(brokers=2, config=BrokerConfig(auto_create_topics_enable=False)) as made:
        made.create_topic("events")
        first = min(made.cluster.image.brokers)
        late = made.faults.alter(ApiKey.METADATA, _without_topic, broker=first, topic="events", times=3)
        assert line(check(settings(made)), "topic").status is Status.OK
        assert late.is_over


def test_a_broker_that_never_hears_of_a_topic_is_named() -> None:
    with EmbeddedBroker(brokers=2, config=BrokerConfig(auto_create_topics_enable=False)) as made:
        made.create_topic("events")
        first = min(made.cluster.image.brokers)
        made.faults.alter(ApiKey.METADATA, _without_topic, broker=first, topic="events", times=None)
        cross = line(check(settings(made), timeout=4), "topic")
    assert cross.status is Status.FAILED
    assert "does not know topic 'events', which other brokers have" in cross.text
    assert f"broker {first} " in cross.text


def test_a_missing_topic_that_brokers_create_is_a_tick() -> None:
    with EmbeddedBroker() as made:
        report = check(settings(made))
        assert "events" not in made.cluster.image.topics
    assert report.ok, str(report)
    assert "the brokers create it with the first record" in line(report, "topic").text


def test_a_missing_topic_that_the_driver_creates_is_a_tick_and_is_not_created(broker: EmbeddedBroker) -> None:
    report = check(settings(broker, topic="new", **{"topic.create.partitions": "3"}))
    assert report.ok, str(report)
    assert "the driver creates it" in line(report, "topic").text
    assert "new" not in broker.cluster.image.topics


def test_a_missing_topic_that_cannot_be_created_is_a_cross_of_its_option(broker: EmbeddedBroker) -> None:
    report = check(settings(broker, topic="new", **{"topic.create.replication.factor": "3"}))
    assert "option topic.create.replication.factor" in line(report, "topic").text
    assert not report.ok


def test_partitions_without_a_leader_are_named() -> None:
    with EmbeddedBroker(2) as made:
        made.create_topic("events", 4)
        made.kill(2)
        gone = [number for number in range(4) if made.leader("events", number) < 0]
        report = check(settings(made) | {"kafka.bootstrap.servers": made.address(1)})
    assert line(report, "topic").text == f"topic 'events': partitions {', '.join(map(str, gone))} of 4 have no leader"
    assert not report.ok


def test_fewer_in_sync_replicas_than_needed_is_a_cross() -> None:
    with EmbeddedBroker(2) as made:
        made.create_topic("events", 1, 2, {"min.insync.replicas": "2"})
        made.kill(2)
        report = check(settings(made) | {"kafka.bootstrap.servers": made.address(1)})
    assert "fewer in-sync replicas than min.insync.replicas=2" in line(report, "topic").text
    assert not report.ok


def test_batches_larger_than_the_topic_takes_are_a_cross(broker: EmbeddedBroker) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "100000"})
    report = check(settings(broker, topic="small"))
    assert line(report, "sizes").status is Status.FAILED
    assert "set kafka.batch.size to at most 100000" in line(report, "sizes").to_do
    fitting = check(settings(broker, topic="small", **{"kafka.batch.size": "100000"}))
    assert fitting.ok
    assert "reject rows that are larger than 100,000 bytes" in line(fitting, "sizes").to_do


def test_times_set_by_brokers_are_told(broker: EmbeddedBroker) -> None:
    broker.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    assert "LogAppendTime" in line(check(settings(broker, topic="stamped")), "timestamps").text


def test_a_compacted_topic_needs_keys(broker: EmbeddedBroker) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    assert "each row needs a key" in line(check(settings(broker, topic="compacted")), "compaction").to_do
