"""Choice of the real Kafka for the tests: the named one, otherwise a new cluster, otherwise the compose file's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.kafka.cluster import KafkaCluster
from tests.kafka.jars import JarsUnavailableError
from tests.kafka.kafka import Kafka

COMPOSE_FILE = Path(__file__).parents[2] / "docker-compose.yml"
ADDRESS = "127.0.0.1:9092"
START_DEADLINE_S = 600


class ComposeUnavailableError(RuntimeError):
    """No container engine can start the compose file. The message has the failed step."""


class ComposeKafka(Kafka):
    """Real Kafka from docker-compose.yml, for machines with a container engine but no Maven.

    It runs in its own compose project, which `stop()` removes with its volumes.
    """

    def __init__(self) -> None:
        docker = shutil.which("docker")
        if docker is None:
            raise ComposeUnavailableError("docker is not on the PATH")
        self._compose = [docker, "compose", "-f", str(COMPOSE_FILE), "-p", "spark-kafka-sink-tests"]
        self._run("version", deadline_s=30)
        try:
            self._run("up", "--detach", "--wait", deadline_s=START_DEADLINE_S)
        except ComposeUnavailableError:
            self.stop()
            raise
        super().__init__(ADDRESS)

    def stop(self) -> None:
        subprocess.run([*self._compose, "down", "--volumes"], capture_output=True, timeout=120, check=False)

    def _run(self, *arguments: str, deadline_s: float) -> None:
        done = subprocess.run(
            [*self._compose, *arguments], capture_output=True, text=True, errors="replace", timeout=deadline_s, check=False
        )
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
            raise ComposeUnavailableError(f"`docker compose {' '.join(arguments)}` failed: {tail}")


def find_kafka() -> Kafka:
    """Returns a running Kafka, which the caller stops. Raises RuntimeError, with all attempts, if there is none."""
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if named:
        return Kafka(named)
    try:
        return KafkaCluster()
    except (JarsUnavailableError, FileNotFoundError) as no_maven:
        try:
            return ComposeKafka()
        except ComposeUnavailableError as no_compose:
            raise RuntimeError(
                "no real Kafka for the tests:\n"
                "1. KAFKA_BOOTSTRAP_SERVERS is not set\n"
                f"2. Kafka from Maven artifacts: {no_maven}\n"
                f"3. Kafka from docker-compose.yml: {no_compose}\n"
                "Any one of the three is enough."
            ) from no_maven
