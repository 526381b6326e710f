"""A real schema registry from Maven Central: Apicurio Registry, through its API that is compatible with Confluent's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.kafka.jars import jars
from tests.kafka.java_server import JavaServer
from tests.kafka.ports import free_ports

POM: Final = Path(__file__).with_name("pom.xml")


class Apicurio(JavaServer):
    """Apicurio Registry in memory.

    It has no login, no guids, no rule sets, and no messages about compatibility. Its default compatibility level is NONE.
    """

    def __init__(self, folder: Path) -> None:
        (program,) = jars(POM).glob("*-runner.jar")
        port, management_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        settings = {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(port),
            # Otherwise it would listen on every address of this machine.
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(management_port),
            "QUARKUS_PROFILE": "prod",
        }
        super().__init__("Apicurio Registry", ("-Xmx384m", "-jar", str(program)), settings, folder, f"{self.url}/subjects")
