"""The record that `report.topic` gets about a committed micro-batch or batch job: JSON, with the query's id as its key."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.options.guarantee_options import Guarantee
from spark_kafka_sink.options.option import INT64_MAX
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport, summed_latencies
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, NO_OFFSET, PartitionReports
from spark_kafka_sink.reports.report_tables import partition_table
from spark_kafka_sink.spark.batch_report import BatchReport

VERSION: Final = 1
"""Raised when a field changes its meaning or goes. Readers ignore fields that they do not know."""

MOST_PARTITIONS: Final = 1000
"""Of a record, which then has at most 350 KB. Topics with more become a sum each; more topics than that are all there."""

_COUNTS: Final = (
    "records",
    "bytes",
    "compressed_bytes",
    "batches",
    "requests",
    "retries",
    "throttled_ms",
    "rate_limited_ms",
    "dead_letters",
    "older_than_retention",
)


class ReportRecord(NamedTuple):
    """A record of the topic.

    name: the query's; "" without one. guarantee: a value of delivery.guarantee.
    """

    batch: BatchReport
    name: str
    guarantee: str

    def value(self) -> bytes:
        """Returns the JSON."""
        batch, report = self.batch, self.batch.report
        began = datetime.fromtimestamp(batch.began, UTC).isoformat(timespec="milliseconds")
        latencies = enumerate(summed_latencies(report.ack_latency))
        fields = {
            "version": VERSION,
            "query_id": batch.query_id,
            "query_name": self.name,
            "sink": batch.sink,
            "batch": batch.batch,
            "guarantee": self.guarantee,
            "began": began.replace("+00:00", "Z"),
            "seconds": round(batch.seconds, 3),
            **{name: getattr(report, name) for name in _COUNTS},
            "errors": report.errors,
            "bad_rows": report.bad_rows,
            "ack_latency_ms": {str(1 << bucket): count for bucket, count in latencies if count},
            "partitions": partition_table(report.partitions.summed(MOST_PARTITIONS)).to_pylist(),
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    @staticmethod
    def of(value: bytes | None) -> ReportRecord:
        """Reads what `value` returns. Raises UsageError for what is no report, and for one of a newer version."""
        try:
            found = json.loads(value or b"")
            if (version := _int(found["version"])) > VERSION:
                text = f"it is a report of version {version}, and this release reads versions up to {VERSION}"
                raise UsageError(f"{text}; upgrade spark-kafka-sink")
            return _read(found)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise UsageError("it is not a report of spark-kafka-sink") from error


def _int(value: object) -> int:
    """Returns a count of 64 bits. Raises ValueError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT64_MAX:
        raise ValueError(value)
    return value


def _read(found: dict[str, Any]) -> ReportRecord:
    latencies = [0] * LATENCY_BUCKETS
    for milliseconds, count in found["ack_latency_ms"].items():
        latencies[_int(int(milliseconds).bit_length()) - 1] = _int(count)
    partitions = PartitionReports()
    for each in found["partitions"]:
        number, first, last = (each[name] for name in ("partition", "first_offset", "last_offset"))
        partitions.count(
            str(each["topic"]),
            ALL_PARTITIONS if number is None else _int(number),
            _int(each["records"]),
            _int(each["bytes"]),
            NO_OFFSET if first is None else _int(first),
            NO_OFFSET if last is None else _int(last),
        )
    counts: dict[str, Any] = {name: _int(found.get(name, 0)) for name in _COUNTS}  # a later release may have more
    report = DeliveryReport(
        **counts,
        errors={str(name): _int(count) for name, count in found["errors"].items()},
        bad_rows={str(name): _int(count) for name, count in found["bad_rows"].items()},
        partitions=partitions,
        ack_latency={"": latencies} if any(latencies) else {},
    )
    began = datetime.fromisoformat(found["began"]).timestamp()
    batch = BatchReport(str(found["query_id"]), _int(found["batch"]), began, float(found["seconds"]), report, str(found["sink"]))
    return ReportRecord(batch, str(found["query_name"]), str(Guarantee(found["guarantee"])))
