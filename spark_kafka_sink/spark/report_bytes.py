"""A DeliveryReport as bytes and back: between processes that share no pickles, from the outside of which nothing is trusted.

A line of JSON, and behind it the packed reports of topic-partitions.
"""

from __future__ import annotations

import json
from typing import Any

from spark_kafka_sink.producer.partition_reports import PartitionReports
from spark_kafka_sink.producer.report import COMMIT_COUNTS, DeliveryReport

_COUNTS = ("records", "bytes", "compressed_bytes", "batches", "requests", "retries", *COMMIT_COUNTS)


def report_to_bytes(report: DeliveryReport) -> bytes:
    fields: dict[str, Any] = {name: getattr(report, name) for name in (*_COUNTS, "errors", "ack_latency")}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n" + report.partitions.to_bytes()


def report_from_bytes(data: bytes) -> DeliveryReport:
    """Raises ValueError, KeyError or TypeError for what `report_to_bytes` does not make."""
    text, _, partitions = data.partition(b"\n")
    fields = json.loads(text)
    return DeliveryReport(
        **{name: int(fields[name]) for name in _COUNTS},
        errors={str(name): int(count) for name, count in fields["errors"].items()},
        partitions=PartitionReports.from_bytes(partitions),
        ack_latency={str(topic): [int(count) for count in counts] for topic, counts in fields["ack_latency"].items()},
    )
