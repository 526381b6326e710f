"""Numbered rows, and the query that moves them into a topic."""

from __future__ import annotations

from pathlib import Path

from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.kafka.kafka import Kafka

# Short enough that a flush takes several requests to each broker.
BATCH_SIZE = 512


def moved(kafka: Kafka, topic: str, folder: Path, batches: int, **options: str) -> tuple[NumberedRows, Query]:
    """folder: takes the rows and the checkpoint. options: of the sink."""
    rows = NumberedRows(folder / "rows", batches).write()
    sink = {
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.batch.size": str(BATCH_SIZE),
    }
    return rows, Query(rows.folder, folder / "checkpoint", rows.tasks, rows.keys, sink | options)
