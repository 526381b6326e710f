"""The embedded broker as a contender's far end: a process of its own, as Kafka's is, with its log where Kafka's is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.kafka.cluster import data_folder
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports

_STOP_S = 20.0
_START_S = 30.0


class Embedded(Kafka):
    """As a client sees it; when it is waited for in vain, what it said is told."""

    def __init__(self, bootstrap_servers: str, said: Path) -> None:
        super().__init__(bootstrap_servers)
        self._said = said

    def explain(self, message: str) -> str:
        return f"{message}\n--- the broker said last:\n{self._said.read_text()[-2000:]}"


@dataclass(frozen=True, slots=True)
class EmbeddedProcess:
    """A running one. `pid`: for its memory and CPU."""

    kafka: Kafka
    pid: int
    folder: Path

    def rss(self) -> int:
        """Bytes that it has in memory now."""
        return int(psutil.Process(self.pid).memory_info().rss)


@contextmanager
def embedded_broker() -> Iterator[EmbeddedProcess]:
    """From the command line's own `spark-kafka-sink broker`, until the end of the `with`."""
    folder = data_folder()
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "spark_kafka_sink.cli", "broker", "--port", str(port), "--data-dir", str(folder)]
    # Deleted logs of earlier runs go at once, as they do after half a second with Kafka's settings in environment.py.
    said = folder / "said.txt"  # beside the figures its log would be in the way
    with said.open("wb") as file:
        process = subprocess.Popen([*command, "--set", "log.retention.check.interval.ms=1000"], stdout=file, stderr=file)
    try:
        kafka = Embedded(f"127.0.0.1:{port}", said)
        kafka.wait_for(lambda: bool(kafka.metadata(timeout_s=1.0).brokers), "the embedded broker ready", _START_S)
        yield EmbeddedProcess(kafka, process.pid, folder)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
