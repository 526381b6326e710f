"""What a task tells the driver when it is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.share import Share
from spark_kafka_sink.producer.report import DeliveryReport

NOT_WRITTEN = (
    "trigger(continuous=...) is not supported, nor is real-time mode: Spark commits without ever calling this sink's tasks,"
    " so nothing is written; use trigger(processingTime=...) or trigger(availableNow=True)"
)


@dataclass(slots=True)
class DeliveryMessage(WriterCommitMessage):
    """One finished task: its Spark partition (-1 outside of a task) and what it delivered; under exactly-once also its share."""

    spark_partition: int = -1
    report: DeliveryReport = field(default_factory=DeliveryReport)
    share: Share | None = None


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[DeliveryReport]:
    """The reports of the tasks that finished; a failed task's message is None."""
    return [message.report for message in messages if isinstance(message, DeliveryMessage)]


def check_complete(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Refuse to commit what no task wrote.

    Spark accepts Trigger.Continuous for a Python sink, never calls write() and commits [None, ...]: a silent loss.
    """
    if any(message is None for message in messages):
        raise UsageError(NOT_WRITTEN)


def shares_of(messages: Sequence[WriterCommitMessage | None]) -> list[Share]:
    """The shares of the tasks that finished under exactly-once."""
    return [message.share for message in messages if isinstance(message, DeliveryMessage) and message.share is not None]


def total(reports: Iterable[DeliveryReport]) -> DeliveryReport:
    """All of them in one."""
    merged = DeliveryReport()
    for report in reports:
        merged.add(report)
    return merged
