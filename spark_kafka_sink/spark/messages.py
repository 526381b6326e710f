"""The message of a finished task to the driver: its report and, under exactly-once, its open transaction.

Both also have a form without pickle, for processes that must not trust their input: a report as bytes, a share as JSON.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any
from uuid import UUID

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.errors import ClusterChangedError, UsageError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, TaskRows
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.reports.delivery_report import COUNTS, DeliveryReport, latencies_from_bytes, latencies_to_bytes
from spark_kafka_sink.reports.partition_reports import PartitionReports

Messages = Sequence[WriterCommitMessage | None]  # a failed task's is None


@dataclass(slots=True)
class DeliveryMessage(WriterCommitMessage):
    """Result of a finished task.

    Attributes:
        spark_partition: The task's; -1 outside of a task.
        report: Its counts.
        share: Its transaction under exactly-once.
        query_id: The id of its streaming query; empty for a batch job.
        began: When it began, in seconds since the epoch.
        ended: When it ended, likewise.
        context: The traceparent of its batch, if that is in the headers of its records.
    """

    spark_partition: int = -1
    report: DeliveryReport = field(default_factory=DeliveryReport)
    share: TaskTransaction | None = None
    query_id: str = ""
    began: float = 0.0
    ended: float = 0.0
    context: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        # The partitions of a transaction are text ("0-7,9,12"), of up to 5 KB for 1,000 of them.
        batch, share = (
            (None, None) if self.share is None else (self.share.batch, zlib.compress(share_to_json(self.share).encode()))
        )
        return _message, (self.spark_partition, self.report, batch, share, self.query_id, self.began, self.ended, self.context)


def _message(
    spark_partition: int, report: DeliveryReport, batch: MicroBatch | None, share: bytes | None, *others: Any
) -> DeliveryMessage:
    read = None if batch is None or share is None else share_from_json(zlib.decompress(share).decode(), batch)
    return DeliveryMessage(spark_partition, report, read, *others)


def reports_of(messages: Messages) -> list[DeliveryReport]:
    """Returns the reports of the tasks that finished."""
    return [message.report for message in messages if isinstance(message, DeliveryMessage)]


def began_of(messages: Messages) -> float:
    """Returns when the first task began, in seconds since the epoch; now if none has finished."""
    return min((each.began for each in messages if isinstance(each, DeliveryMessage)), default=time.time())


def check_clusters(reports: Iterable[DeliveryReport]) -> None:
    """Raises ClusterChangedError if tasks of one write have sent records to two clusters."""
    found = sorted({each for report in reports for each in report.clusters})
    if len(found) > 1:
        raise ClusterChangedError(
            f"tasks wrote to several clusters, because addresses in kafka.bootstrap.servers led to another one in the meantime:"
            f" {', '.join(found)}. Check where they lead, and write again",
            cluster_ids=tuple(found),
        )


def shares_of(messages: Messages) -> list[TaskTransaction]:
    """Returns the shares of the tasks that finished under exactly-once."""
    return [message.share for message in messages if isinstance(message, DeliveryMessage) and message.share is not None]


def total(reports: Iterable[DeliveryReport]) -> DeliveryReport:
    """Returns the sum of reports."""
    merged = DeliveryReport()
    for report in reports:
        merged.add(report)
    return merged


def report_to_bytes(report: DeliveryReport) -> bytes:
    """Returns a line of JSON, followed by the packed latencies and the packed reports of topic-partitions."""
    latencies = latencies_to_bytes(report.ack_latency)
    values: dict[str, Any] = {name: getattr(report, name) for name in (*COUNTS, "errors", "bad_rows", "bad_row_example")}
    values["clusters"] = sorted(report.clusters)
    line = json.dumps(values | {"latencies": len(latencies)}, separators=(",", ":")).encode()
    return line + b"\n" + latencies + report.partitions.to_bytes()


def report_from_bytes(data: bytes) -> DeliveryReport:
    """Reads what `report_to_bytes` returns. Raises ValueError, KeyError or TypeError for other bytes."""
    text, _, packed = data.partition(b"\n")
    values = json.loads(text)
    size = int(values["latencies"])
    return DeliveryReport(
        **{name: int(values[name]) for name in COUNTS},
        errors={str(name): int(count) for name, count in values["errors"].items()},
        bad_rows={str(name): int(count) for name, count in values["bad_rows"].items()},
        bad_row_example=str(values["bad_row_example"]),
        clusters=set(map(str, values["clusters"])),
        partitions=PartitionReports.from_bytes(packed[size:]),
        ack_latency=latencies_from_bytes(packed[:size]),
    )


def share_to_json(share: TaskTransaction) -> str:
    """Returns a list of the task's transaction and the task's rows, both as lists, or null if the task has none."""
    return json.dumps([None if each is None else astuple(each) for each in (share.transaction, share.rows)])


def share_from_json(text: str, batch: MicroBatch) -> TaskTransaction:
    """Reads what `share_to_json` returns. Raises UsageError for other text, such as an older release's."""
    try:
        transaction, rows = json.loads(text)
        return TaskTransaction(
            batch,
            None if transaction is None else _transaction(*transaction),
            None if rows is None else TaskRows(*map(int, rows)),
        )
    except (ValueError, TypeError) as error:
        raise other_release(batch, "a task reports its transaction in an unknown form") from error


def other_release(batch: MicroBatch, found: str) -> UsageError:
    """Returns the error of a task's message that this release does not understand."""
    return UsageError(
        f"{batch}: {found}. Executors run another release of spark-kafka-sink than the driver, so nothing is committed. Install"
        " the same release everywhere",
        query_id=batch.query_id,
        batch=batch.number,
    )


def _transaction(of_handle: list[Any], partition: int, checksum: int) -> PreparedTransaction:
    name, producer_id, epoch, version, records, where, ids = of_handle
    partitions = tuple((str(topic), str(numbers)) for topic, numbers in where)
    topic_ids = tuple((str(topic), str(UUID(each))) for topic, each in ids)
    handle = TransactionHandle(str(name), int(producer_id), int(epoch), int(version), int(records), partitions, topic_ids)
    return PreparedTransaction(handle, int(partition), int(checksum))
