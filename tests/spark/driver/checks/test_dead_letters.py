"""Checks of the topics of dead letters and of reports."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.spark.driver.check import CheckReport, check
from spark_kafka_sink.spark.driver.checks.report import Status
from spark_kafka_sink.spark.driver.checks.topic import DEAD_LETTERS, REPORTS
from tests.spark.driver.checks.reading import line, lines, settings


@pytest.fixture(scope="module")
def letters(broker: EmbeddedBroker) -> str:
    return broker.create_topic("letters", 2)


def report_of(broker: EmbeddedBroker, topic: str, **more: str) -> CheckReport:
    return check(settings(broker, **{"on.error": "dead-letter", "dead.letter.topic": topic, **more}))


def test_a_dead_letter_topic_that_can_be_written_to_is_a_tick(broker: EmbeddedBroker, letters: str) -> None:
    report = report_of(broker, letters)
    assert report.ok, str(report)
    assert line(report, DEAD_LETTERS).text == "topic 'letters' has 2 partitions"
    assert [each.text for each in lines(report, "rights")][-1] == "allowed on topic 'letters': Write"


def test_without_one_there_is_no_line(broker: EmbeddedBroker) -> None:
    assert lines(check(settings(broker)), DEAD_LETTERS) == []
    assert lines(check(settings(broker, **{"on.error": "drop"})), DEAD_LETTERS) == []


def test_a_missing_one_is_a_cross_of_its_option(broker: EmbeddedBroker, letters: str) -> None:
    cross = line(report_of(broker, "leters"), DEAD_LETTERS)
    assert cross.status is Status.FAILED
    assert cross.text == "topic 'leters' does not exist; did you mean letters?"
    assert cross.to_do.startswith("correct the option dead.letter.topic, create it with ")


def test_one_that_the_driver_creates_is_a_tick(broker: EmbeddedBroker) -> None:
    report = report_of(broker, "new", **{"topic.create.partitions": "1"})
    assert report.ok, str(report)
    assert "the driver creates it" in line(report, DEAD_LETTERS).text
    assert "new" not in broker.cluster.image.topics


@pytest.mark.parametrize(
    ("name", "configs", "hint"),
    [
        ("keyed", {"cleanup.policy": "compact"}, "brokers reject letters without a key"),
        ("narrow", {"max.message.bytes": "1000"}, "letters over max.message.bytes=1,000 lose their value"),
    ],
)
def test_what_becomes_of_letters_is_a_hint(broker: EmbeddedBroker, name: str, configs: dict[str, str], hint: str) -> None:
    broker.create_topic(name, configs=configs)
    tick = line(report_of(broker, name), DEAD_LETTERS)
    assert tick.status is Status.OK
    assert hint in tick.to_do


def test_partitions_without_a_leader_are_a_cross() -> None:
    with EmbeddedBroker(2) as made:
        made.create_topic("events", 1)
        made.create_topic("letters", 4)
        made.kill(2)
        gone = sum(made.leader("letters", number) < 0 for number in range(4))
        report = check(
            settings(made, **{"on.error": "dead-letter", "dead.letter.topic": "letters"})
            | {"kafka.bootstrap.servers": made.address(1)}
        )
    assert line(report, DEAD_LETTERS).text == f"topic 'letters': {gone} partitions of 4 without a leader"


def test_the_topic_of_reports_is_looked_at_in_the_same_way(broker: EmbeddedBroker) -> None:
    broker.create_topic("audit")
    tick = line(check(settings(broker, **{"report.topic": "audit"})), REPORTS)
    cross = line(check(settings(broker, **{"report.topic": "audits"})), REPORTS)
    assert (tick.status, tick.text) == (Status.OK, "topic 'audit' has 1 partition")
    assert (cross.status, cross.text) == (Status.FAILED, "topic 'audits' does not exist; did you mean audit?")
    assert cross.to_do.startswith("correct the option report.topic, create it with ")
    assert lines(check(settings(broker)), REPORTS) == []
