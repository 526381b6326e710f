"""How the commands reach a cluster, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# The sink's own defaults; its module is not imported for a --help.
PREFIX = "spark-kafka-sink"
COMMIT_LOG_TOPIC = "__spark_kafka_sink_commits"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """commit_log_partitions: None: as many as the topic has. timeout_s: for each query or job."""

    bootstrap_servers: str
    prefix: str
    commit_log_topic: str
    commit_log_partitions: int | None
    command_config: Path | None
    timeout_s: float
    as_json: bool
