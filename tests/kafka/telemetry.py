"""A real Kafka whose broker has a telemetry receiver (KIP-714), and what clients pushed to it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kafka import java
from tests.kafka.class_archive import QUICK_START
from tests.kafka.cluster import KafkaCluster
from tests.kafka.versions import jars_of
from tests.waiting import until

SOURCE = Path(__file__).with_name("TelemetryReceiver.java")


@dataclass(frozen=True)
class ReceivedPush:
    """A push, as `data` and as the text of Kafka's own Protobuf classes. instance_id: as Kafka writes ids."""

    client_id: str
    instance_id: str
    terminating: bool
    content_type: str
    data: bytes
    text: str


class TelemetryKafka:
    """One broker with a receiver."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder

    def subscribe(self, name: str, *, metrics: str, interval_ms: int, client_id: str) -> None:
        """Creates or changes a subscription with Kafka's own tool."""
        java.run(
            "org.apache.kafka.tools.ClientMetricsCommand",
            *("--bootstrap-server", self.cluster.bootstrap_servers, "--alter", "--name", name),
            *("--metrics", metrics, "--interval", str(interval_ms), "--match", f"client_id={client_id}"),
            timeout_s=60,  # of the default version, whose jars have the tools
        )

    def run(self, command: str) -> None:
        """Runs a command line of kafka-client-metrics.sh on this broker."""
        _, *arguments = shlex.split(command.replace("localhost:9092", self.cluster.bootstrap_servers))
        java.run("org.apache.kafka.tools.ClientMetricsCommand", *arguments, timeout_s=60)

    def pushes(self, client_id: str) -> list[ReceivedPush]:
        """The pushes of one client so far."""
        found = (_read(path) for path in sorted(self._folder.glob("*.txt")))
        return [push for push in found if push.client_id == client_id]

    def wait_for_pushes(self, client_id: str, count: int) -> list[ReceivedPush]:
        return until(lambda: self.pushes(client_id), lambda found: len(found) >= count, f"{count} pushes of {client_id}")


def _read(path: Path) -> ReceivedPush:
    first, _, text = path.read_text().partition("\n")
    client_id, instance_id, terminating, content_type = first.split(" ")
    return ReceivedPush(client_id, instance_id, terminating == "true", content_type, path.with_suffix(".bin").read_bytes(), text)


@contextmanager
def telemetry_kafka(version: str) -> Iterator[TelemetryKafka]:
    with TemporaryDirectory() as made:
        classes, folder = Path(made, "classes"), Path(made, "pushes")
        folder.mkdir()
        compiler = [java.java(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        jars = os.pathsep.join(map(str, jars_of(version).glob("*.jar")))  # only the launcher knows wildcards
        arguments = ["-cp", jars, "-d", str(classes), str(SOURCE)]
        subprocess.run([*compiler, *arguments], check=True, timeout=120)
        with KafkaCluster(
            overrides={"metric.reporters": SOURCE.stem},
            version=version,
            java_options=[*QUICK_START, f"-Dtelemetry.folder={folder}"],
            classes=classes,
        ) as cluster:
            yield TelemetryKafka(cluster, folder)
