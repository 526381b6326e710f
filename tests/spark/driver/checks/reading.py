"""Options of a sink on an embedded broker, and lines of a report by their name."""

from __future__ import annotations

from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.spark.driver.check import CheckReport
from spark_kafka_sink.spark.driver.checks.report import CheckLine, Status

EXACTLY_ONCE = {"delivery.guarantee": "exactly-once"}


def settings(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    return {**{f"kafka.{name}": value for name, value in broker.client_settings.items()}, "topic": "events", **more}


def lines(report: CheckReport, name: str) -> list[CheckLine]:
    return [line for line in report.lines if line.name == name]


def line(report: CheckReport, name: str) -> CheckLine:
    (found,) = lines(report, name)
    return found


def statuses(report: CheckReport) -> dict[str, Status]:
    return {each.name: each.status for each in report.lines}
