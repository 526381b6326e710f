"""A DeliveryReport as JSON and back: between processes that share no pickles, from the outside of which nothing is trusted."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from spark_kafka_sink.producer.report import COMMIT_COUNTS, DeliveryReport, PartitionReport

_COUNTS = ("records", "bytes", "compressed_bytes", "batches", "requests", "retries", *COMMIT_COUNTS)


def report_to_json(report: DeliveryReport) -> str:
    fields: dict[str, Any] = {name: getattr(report, name) for name in (*_COUNTS, "errors", "ack_latency")}
    fields["partitions"] = [{"topic": t, "partition": p, **asdict(one)} for (t, p), one in report.partitions.items()]
    return json.dumps(fields, separators=(",", ":"))


def report_from_json(text: str | bytes) -> DeliveryReport:
    """Raises ValueError, KeyError or TypeError when the text is not what `report_to_json` makes."""
    fields = json.loads(text)
    partitions = {}
    for one in fields["partitions"]:
        numbers = {name: int(one[name]) for name in ("records", "bytes", "first_offset", "last_offset")}
        partitions[str(one["topic"]), int(one["partition"])] = PartitionReport(**numbers)
    return DeliveryReport(
        **{name: int(fields[name]) for name in _COUNTS},
        errors={str(name): int(count) for name, count in fields["errors"].items()},
        partitions=partitions,
        ack_latency={str(topic): [int(count) for count in counts] for topic, counts in fields["ack_latency"].items()},
    )
