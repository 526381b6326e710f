"""The report of a committed micro-batch or batch job, which the committing process sends to the driver."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.reports.delivery_report import DELETED_SOON, DeliveryReport, bucket_of_rank, summed_latencies
from spark_kafka_sink.reports.report_facts import printable
from spark_kafka_sink.spark.messages import report_from_bytes, report_to_bytes, total

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Report of a committed micro-batch or batch job.

    Attributes:
        query_id: Spark's id of the query; of a batch job an id that begins with "job-".
        batch: Spark's number of the micro-batch; 0 for a batch job.
        began: When its first task began, in seconds since the epoch.
        seconds: Time from then until it was committed.
        report: Its counts. They are 0 if an earlier attempt had committed it.
        sink: Name that tells apart the sinks of one foreachBatch function, each of which has its own report.
    """

    query_id: str
    batch: int
    began: float
    seconds: float
    report: DeliveryReport
    sink: str = ""

    @property
    def rows_per_second(self) -> float:
        """Acknowledged records per second."""
        return self.report.records / self.seconds if self.seconds > 0 else 0.0

    def ack_latency_ms(self, fraction: float) -> float:
        """Returns the time in ms within which this fraction of the record batches was acknowledged, rounded up to a power of 2.
        NaN if nothing was acknowledged.
        """
        return ack_latencies_ms(self.report, [fraction])[0]

    def to_bytes(self) -> bytes:
        """Returns the report as a line of JSON, followed by the counts."""
        line = json.dumps([self.query_id, self.batch, self.began, self.seconds, self.sink], separators=(",", ":"))
        return line.encode() + b"\n" + report_to_bytes(self.report)

    @staticmethod
    def from_bytes(data: bytes) -> BatchReport:
        """Reads what `to_bytes` returns. Raises ValueError, KeyError or TypeError for other bytes."""
        line, _, report = data.partition(b"\n")
        query_id, batch, began, seconds, sink = json.loads(line)
        return BatchReport(str(query_id), int(batch), float(began), float(seconds), report_from_bytes(report), str(sink))

    def __str__(self) -> str:
        """Returns one line, as for a log."""
        return self.line("")

    def line(self, name: str) -> str:
        """Returns the report as one line for a log. It names the query by `name`, or by its id if `name` is empty."""
        report = self.report
        of = self.query_id if is_job(self.query_id) else f"batch {self.batch} of {printable(name) or self.query_id}"
        parts = [
            f"{counted(report.records, 'row')} in {self.seconds:,.1f} s ({self.rows_per_second:,.0f} rows/s)",
            f"{report.bytes / 1e6:,.1f} MB",
            f"99 % of batches acknowledged within {self.ack_latency_ms(0.99):,.0f} ms" if report.ack_latency else "",
            f"commit {report.commit_ms:,} ms" if report.commits else "",
            counted(report.retries, "retry", "retries"),
            report.bad_rows_text() if report.bad_rows else "",
            f"{report.older_than_retention:,} older than retention.ms" if report.older_than_retention else "",
            *report.slowed_down(),
        ]
        return f"{of}: " + ", ".join(filter(None, parts))


_warned: Final[set[str]] = set()


def committed_now(query_id: str, batch: int, began: float, reports: Iterable[DeliveryReport], sink: str = "") -> BatchReport:
    """Returns the report of a batch that is committed now, from those of its tasks."""
    return BatchReport(query_id, batch, began, max(time.time() - began, 0.0), total(reports), sink)


def warn_of_old_rows(query_id: str, rows: int) -> None:
    """Logs one warning in this process for each query that wrote rows which brokers delete soon."""
    if rows and query_id not in _warned:
        _warned.add(query_id)
        of, records = query_id if is_job(query_id) else f"query {query_id}", counted(rows, "row is", "rows are")
        logger.warning("%s: %s older than retention.ms of the topic: %s. Reports count such rows", of, records, DELETED_SOON)


def ack_latencies_ms(report: DeliveryReport, fractions: Sequence[float]) -> list[float]:
    """Returns the upper bounds in ms of the buckets of all topics' acknowledgements at these fractions; NaN if there are none."""
    counts = summed_latencies(report.ack_latency)
    batches = sum(counts)
    if not batches:
        return [float("nan")] * len(fractions)
    return [float(1 << bucket_of_rank(counts, fraction * batches)) for fraction in fractions]
