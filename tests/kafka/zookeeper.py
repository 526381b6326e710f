"""The ZooKeeper server of a cluster in ZooKeeper mode, out of the jars of a 3.x broker."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from tests.kafka import java
from tests.kafka.guardian import Guardian

# Brokers ask for their session timeout; the server grants at least two ticks, at most twenty.
TICK_MS = 500
OPTIONS = (
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.admin.enableServer=false",
)


class ZooKeeper:
    """A single server. It may still be starting when the constructor returns: brokers wait for it."""

    def __init__(self, port: int, folder: Path, guardian: Guardian, version: str) -> None:
        """Starts the server.

        Args:
            port: where it listens, on the loopback address.
            folder: takes its settings, output and data.
            guardian: ends the server if this process dies.
            version: Kafka's, whose jars hold the server.
        """
        self.address = f"127.0.0.1:{port}"
        self.output = folder / "zookeeper.log"
        self._guardian = guardian
        settings_file = folder / "zookeeper.properties"
        settings = {
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "dataDir": folder / "zookeeper",
            "tickTime": TICK_MS,
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "dump",
        }
        settings_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with self.output.open("ab") as output:
            self._process: subprocess.Popen[bytes] = java.start(
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(settings_file),
                options=OPTIONS,
                output=output,
                version=version,
            )
        guardian.watch_process(self._process.pid)

    def has_session_of(self, broker_id: int) -> bool:
        """Returns whether the broker is still registered. A killed one is until its session has timed out."""
        host, _, port = self.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as answer:
            connection.sendall(b"dump")
            return f"/brokers/ids/{broker_id}\n".encode() in answer.read()

    def kill(self) -> None:
        """Ends the server with SIGKILL; does nothing when it has ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=30)
        self._guardian.forget_process(self._process.pid)
