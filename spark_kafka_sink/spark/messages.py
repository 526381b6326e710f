"""What a task tells the driver when it is done."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.share_json import share_from_json, share_to_json

NOT_WRITTEN = (
    "trigger(continuous=...) is not supported, nor is real-time mode: Spark commits without ever calling this sink's tasks,"
    " so nothing is written; use trigger(processingTime=...) or trigger(availableNow=True)"
)


@dataclass(slots=True)
class DeliveryMessage(WriterCommitMessage):
    """One finished task: its Spark partition (-1 outside of a task) and what it delivered; under exactly-once also its share."""

    spark_partition: int = -1
    report: DeliveryReport = field(default_factory=DeliveryReport)
    share: TaskTransaction | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # The partitions of a transaction are text ("0-7,9,12"), of up to 5 KB for 1,000 of them.
        batch, share = (
            (None, None) if self.share is None else (self.share.batch, zlib.compress(share_to_json(self.share).encode()))
        )
        return _message, (self.spark_partition, self.report, batch, share)


def _message(spark_partition: int, report: DeliveryReport, batch: MicroBatch | None, share: bytes | None) -> DeliveryMessage:
    if batch is None or share is None:
        return DeliveryMessage(spark_partition, report)
    return DeliveryMessage(spark_partition, report, share_from_json(zlib.decompress(share).decode(), batch))


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[DeliveryReport]:
    """The reports of the tasks that finished; a failed task's message is None."""
    return [message.report for message in messages if isinstance(message, DeliveryMessage)]


def check_complete(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Refuse to commit what no task wrote.

    Spark accepts Trigger.Continuous for a Python sink, never calls write() and commits [None, ...]: a silent loss.
    """
    if any(message is None for message in messages):
        raise UsageError(NOT_WRITTEN)


def shares_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskTransaction]:
    """The shares of the tasks that finished under exactly-once."""
    return [message.share for message in messages if isinstance(message, DeliveryMessage) and message.share is not None]


def total(reports: Iterable[DeliveryReport]) -> DeliveryReport:
    """All of them in one."""
    merged = DeliveryReport()
    for report in reports:
        merged.add(report)
    return merged
