"""The feed that travels with a task and its commit, and brings their reports back: by accumulators and the driver's listener."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from pyspark.accumulators import Accumulator, AccumulatorParam

from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.messages import total
from spark_kafka_sink.spark.open_transactions import Oldest, OpenTransaction, merged
from spark_kafka_sink.spark.reports_to_driver import ListenerAddress, driver_reports
from spark_kafka_sink.spark.write_events import WRITE, WriteCommitted, WriteEvent, event_to_bytes

# The kinds of messages about batches.
COMMITTED: Final = b"C"
REFUSED: Final = b"R"
ABORTED: Final = b"A"
COMMITTING: Final = b"M"
PLANNED: Final = b"O"
# An answer to COMMITTED: an exporter wants the WriteCommitted, too.
WANTS_DETAILS: Final = 2


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of what a running task has delivered so far.

    Attributes:
        records: Acknowledged records.
        bytes: Their size, encoded but before compression.
        retries: Batches that were sent again.
    """

    records: int = 0
    bytes: int = 0
    retries: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.records + other.records, self.bytes + other.bytes, self.retries + other.retries)


class DeliveryReportParam(AccumulatorParam[DeliveryReport | None]):
    """Merges reports. None is "nothing reported", which differs from a report of 0 records."""

    def zero(self, value: DeliveryReport | None) -> DeliveryReport | None:
        return None

    def addInPlace(self, value1: DeliveryReport | None, value2: DeliveryReport | None) -> DeliveryReport | None:
        # A new object each time: PySpark's accumulator thread adds while the driver program reads the last one.
        reports = [report for report in (value1, value2) if report is not None]
        return total(reports) if reports else None


@dataclass(frozen=True, slots=True)
class RunningTasks:
    """Counts of what running tasks have delivered so far.

    Attributes:
        tasks: Number of tasks that run and have told.
        records: Records that brokers have acknowledged.
        bytes: Their size, encoded but before compression.
        retries: Batches that were sent again.
    """

    tasks: int
    records: int
    bytes: int
    retries: int


class CountsParam(AccumulatorParam[Counts]):
    """Adds up what finished tasks have delivered, for the bar of one call."""

    def zero(self, value: Counts) -> Counts:
        return Counts()

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        return value1 + value2


@dataclass(slots=True)
class CountsHere:
    """Adds up what tasks of this process have delivered. One thread at a time may use it.

    An Accumulator would need an id in PySpark's registry, where -1 and -2 are those of Spark's profiler.
    """

    value: Counts = field(default_factory=Counts)

    def add(self, counts: Counts) -> None:
        self.value += counts


class OldestParam(AccumulatorParam[Oldest]):
    """Merges the transactions that finished tasks have left open."""

    def zero(self, value: Oldest) -> Oldest:
        return {}

    def addInPlace(self, value1: Oldest, value2: Oldest) -> Oldest:
        return merged(value1, value2)


def writer_of(planned: bytes) -> str:
    """Returns the name of the options in a message of kind PLANNED. All micro-batches of a query have the same."""
    return sha256(planned).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Feed:
    """Travels with a task and its commit and brings their reports back. Fields are None if that is not possible.

    Attributes:
        accumulator: Adds up the reports of finished tasks.
        listener: The address of the driver program's listener.
        call: Names a call of the sink whose bar shows running tasks. Empty: the query or job names it.
        finished: Adds up the counts of finished tasks of that call.
        transactions: Merges the transactions that finished tasks have left open.
        driver: Tells apart the transactions of driver programs, as in `TransactionalIds`; "" if the format is not registered.
        writer: Names the options of the query that it belongs to, as `planned` told them; "" if it did not.
    """

    accumulator: Accumulator[DeliveryReport | None] | None = None
    listener: ListenerAddress | None = None
    call: str = ""
    finished: Accumulator[Counts] | CountsHere | None = None
    transactions: Accumulator[Oldest] | None = None
    driver: str = ""
    writer: str = ""

    def planned(self, options: Mapping[str, object]) -> Feed:
        """Tells the driver program the options of a stream under exactly-once, and returns the feed for its tasks.

        The driver ends the transactions of a query that was stopped before Spark has called the sink. It never raises.
        """
        # Others are objects of the user, such as a serializer, which an end of transactions does not need.
        plain = {name: value for name, value in options.items() if isinstance(value, str | int | float)}
        content = json.dumps(plain, sort_keys=True).encode()
        lost = "the driver program cannot be told how to end the transactions of a query that is stopped"
        self._send(PLANNED, lambda: content, lost, logging.INFO)
        return replace(self, writer=writer_of(content))

    def left_open(self, transaction: OpenTransaction) -> None:
        """Reports a transaction that a task leaves open when it ends. Spark takes it to the driver as in `task_done`."""
        if self.transactions is not None:
            self.transactions.add({transaction.query_id: transaction._replace(writer=self.writer)})

    def task_done(self, report: DeliveryReport) -> None:
        """Reports a finished task. Spark takes the update to the driver once, and only if the task succeeds."""
        if self.accumulator is not None:
            self.accumulator.add(report)
        self.delivered(report)

    def delivered(self, report: DeliveryReport) -> None:
        """Counts for the call's bar what a task has delivered. Of a failed task Spark drops it unless the call runs it itself."""
        if self.finished is not None:
            self.finished.add(Counts(report.records, report.bytes, report.retries))

    def committed(self, batch: BatchReport, details: Callable[[], WriteCommitted] | None = None) -> None:
        """Reports a commit from Spark's commit process. The rows are written, so a missing driver program is not an error.

        details: returns what is reported only if an exporter wants it. It may raise.
        """
        lost = "a commit's delivery report did not reach the driver program, so `committed` is too low"
        if self._send(COMMITTED, batch.to_bytes, lost) == WANTS_DETAILS and details is not None:
            self._send(WRITE, lambda: event_to_bytes(details()), "a commit's details did not reach the driver program")

    def aborted(self, batch: MicroBatch) -> None:
        """Reports from Spark's commit process that none of a batch's transactions is open any more. It never raises."""
        content = f"{batch.query_id} {batch.number}".encode
        self._send(ABORTED, content, "could not report an aborted batch to the driver program", logging.INFO)

    def committing(self, commit: OpenTransaction) -> None:
        """Reports a commit that has waited for long since it ended its transactions. It never raises.

        commit: began: when it had ended them. timeout_s: how long it waits at most.
        """
        content = json.dumps(commit).encode
        self._send(COMMITTING, content, "could not report a commit that waits to the driver program", logging.INFO)

    def tell(self, event: WriteEvent) -> None:
        """Tells exporters in the driver program about a write, from a process of Spark's. It never raises."""
        self._send(WRITE, lambda: event_to_bytes(event), "the driver program cannot be told about a write", logging.INFO)

    def refused(self) -> None:
        """Reports a refused commit from Spark's commit process. Spark only logs its errors for continuous queries."""
        lost = "could not report a refused commit to the driver program, so a continuous query continues"
        self._send(REFUSED, bytes, lost, is_urgent=True)

    def _send(
        self, kind: bytes, content: Callable[[], bytes], lost: str, level: int = logging.WARNING, *, is_urgent: bool = False
    ) -> int | None:
        """Sends from the driver's machine, where Spark plans and commits. See `DriverReports.send`."""
        if self.listener is None:
            return None
        return driver_reports.send(self.listener.local, kind, content, lost, level, is_urgent=is_urgent)
