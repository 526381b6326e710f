"""Checks of exactly-once: brokers, time-out and commit log."""

from __future__ import annotations

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark.driver.check import check
from spark_kafka_sink.spark.driver.checks.report import Status
from tests.spark.driver.checks.reading import EXACTLY_ONCE, line, lines, settings


def test_brokers_that_are_too_old_for_exactly_once_are_a_cross() -> None:
    with EmbeddedBroker(like="3.7") as made:
        made.create_topic("events")
        wanted = check(settings(made, **EXACTLY_ONCE))
        other = check(settings(made))
    assert "exactly-once requires Kafka 3.8 or newer" in line(wanted, "exactly-once").text
    assert not wanted.ok
    assert other.ok, str(other)
    assert "do not support it" in line(other, "exactly-once").text


def test_brokers_that_list_no_transactions_are_a_hint() -> None:
    with EmbeddedBroker() as made:
        made.create_topic("events")
        made.faults.fail(ApiKey.LIST_TRANSACTIONS, ErrorCode.UNSUPPORTED_VERSION, times=None)
        report = check(settings(made, **EXACTLY_ONCE))
    assert report.ok, str(report)
    hint = lines(report, "exactly-once")[1]
    assert hint.text == "the brokers do not list open transactions"
    assert "those that lost tasks left open end when they time out" in hint.to_do


def test_a_time_out_over_the_brokers_limit_is_a_cross(broker: EmbeddedBroker) -> None:
    report = check(settings(broker, **EXACTLY_ONCE, **{"kafka.transaction.timeout.ms": "3600000"}))
    cross = lines(report, "exactly-once")[0]
    assert cross.status is Status.FAILED
    assert "set kafka.transaction.timeout.ms to at most 900000" in cross.to_do


def test_a_commit_log_that_is_not_compacted_is_a_cross(broker: EmbeddedBroker) -> None:
    broker.create_topic("log", 50)
    report = check(settings(broker, **EXACTLY_ONCE, **{"commit.log.topic": "log"}))
    assert "cleanup.policy=delete" in line(report, "commit log").text


def test_a_commit_log_with_fewer_partitions_is_a_cross(broker: EmbeddedBroker) -> None:
    broker.create_topic("short-log", 1, configs={"cleanup.policy": "compact"})
    report = check(settings(broker, **EXACTLY_ONCE, **{"commit.log.topic": "short-log", "commit.log.partitions": "2"}))
    assert "set commit.log.partitions to 1" in line(report, "commit log").to_do


def test_a_commit_log_that_does_not_exist_is_not_created() -> None:
    with EmbeddedBroker() as made:  # it creates topics automatically
        made.create_topic("events")
        report = check(settings(made, **EXACTLY_ONCE))
        assert line(report, "commit log").text.endswith("does not exist; the first commit creates it")
        assert {*made.cluster.image.topics} - {"__transaction_state"} == {"events"}
