"""The options that all commands of `topics` share, and the client that they describe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_kafka_sink.client.cluster_client import ClusterClient


@dataclass(frozen=True, slots=True)
class TopicsConnection:
    """The options of all commands. bootstrap_servers: None for the default. timeout_s: seconds that brokers have to answer."""

    bootstrap_servers: str | None
    command_config: Path | None
    timeout_s: float
    as_json: bool

    @contextmanager
    def client(self) -> Iterator[tuple[ClusterClient, float]]:
        """Yields a client and the deadline of its answers; errors are one line each, without a traceback."""
        from spark_kafka_sink.cli.client_settings import cluster_client  # `--help` needs no client

        with cluster_client(self.bootstrap_servers, self.command_config, self.timeout_s) as client:
            yield client, time.monotonic() + self.timeout_s
