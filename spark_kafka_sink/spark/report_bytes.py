"""A DeliveryReport as bytes and back: between processes that share no pickles, from the outside of which nothing is trusted.

A line of JSON, and behind it the packed latencies and reports of topic-partitions.
"""

from __future__ import annotations

import json
from typing import Any

from spark_kafka_sink.producer.partition_reports import PartitionReports
from spark_kafka_sink.producer.report import COMMIT_COUNTS, DeliveryReport, latencies_from_bytes, latencies_to_bytes

_COUNTS = ("records", "bytes", "compressed_bytes", "batches", "requests", "retries", *COMMIT_COUNTS)


def report_to_bytes(report: DeliveryReport) -> bytes:
    latencies = latencies_to_bytes(report.ack_latency)
    values: dict[str, Any] = {name: getattr(report, name) for name in (*_COUNTS, "errors")}
    line = json.dumps(values | {"latencies": len(latencies)}, separators=(",", ":")).encode()
    return line + b"\n" + latencies + report.partitions.to_bytes()


def report_from_bytes(data: bytes) -> DeliveryReport:
    """Raises ValueError, KeyError or TypeError for what `report_to_bytes` does not make."""
    text, _, packed = data.partition(b"\n")
    values = json.loads(text)
    size = int(values["latencies"])
    return DeliveryReport(
        **{name: int(values[name]) for name in _COUNTS},
        errors={str(name): int(count) for name, count in values["errors"].items()},
        partitions=PartitionReports.from_bytes(packed[size:]),
        ack_latency=latencies_from_bytes(packed[:size]),
    )
