"""One node of a cluster: its settings, its storage and its process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.kafka import java
from tests.kafka.guardian import Guardian

# A broker that keeps silent for this long is fenced and its partitions get other leaders. Kafka's 9 s would make every test that
# kills a leader wait for it; under 4 s a busy machine fences brokers that are well.
SESSION_TIMEOUT_MS = 4_000
# Further listeners are reached by a name: certificates and Kerberos principals are for names.
LISTENER_HOST = "localhost"


class Broker:
    """A node: broker and controller in one, or in ZooKeeper mode a broker. Owned by the thread that owns its cluster."""

    def __init__(
        self,
        node_id: int,
        ports: tuple[int, int, int],
        folder: Path,
        guardian: Guardian,
        options: list[str],
        version: str,
        classes: Path | None = None,
    ) -> None:
        """ports: for clients, other brokers, controllers. folder: takes settings, output and data. options: Java's.

        classes: a folder of further classes.
        """
        self.id = node_id
        self.client_port, self.internal_port, self.controller_port = ports
        self.log_dir = folder / f"data-{node_id}"
        self.output = folder / f"broker-{node_id}.log"
        self._settings_file = folder / f"broker-{node_id}.properties"
        self._guardian = guardian
        self._options = options
        self._version = version
        self._classes = classes
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, settings: Mapping[str, str]) -> None:
        lines = [f"{name}={value}\n".replace("\\", "\\\\") for name, value in settings.items()]
        self._settings_file.write_text("".join(lines), encoding="ascii")  # Java's properties files are Latin-1

    def format(self, cluster_id: str, features: Mapping[str, int]) -> None:
        """features: those to be finalized at another level than this release's own."""
        levels = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
        arguments = ["-t", cluster_id, "-c", str(self._settings_file), *levels]
        java.run("kafka.tools.StorageTool", "format", *arguments, timeout_s=60, version=self._version)

    def start(self) -> None:
        with self.output.open("ab") as output:
            self._process = java.start(
                "kafka.Kafka",
                str(self._settings_file),
                options=self._options,
                output=output,
                version=self._version,
                classes=self._classes,
            )
        self._guardian.watch_process(self._process.pid)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"broker {self.id} is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: no controlled shutdown, no last flush. Does nothing to a broker that is not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(timeout=30)
        self._guardian.forget_process(self._process.pid)
        self._process = None

    def pause(self) -> None:
        """SIGSTOP: the connections stay, nothing is answered."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        # A thread of a busy process goes on for a moment. waitpid tells of the stop once, and leaves the process to Popen.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError(f"broker {self.id} is not running")
        self._process.send_signal(number)

    def output_tail(self) -> str:
        if not self.output.exists():
            return ""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-30:])


def kraft(broker: Broker, *, advertised: str, voters: str, brokers: int) -> dict[str, str]:
    """Returns server.properties of one of `brokers` nodes that need no ZooKeeper.

    Args:
        broker: the node.
        advertised: the "host:port" that clients are told.
        voters: of the controllers' quorum, as "id@host:port,...".
        brokers: how many there are.
    """
    of_all = _settings(broker, advertised, brokers)
    return of_all | {
        "process.roles": "broker,controller",
        "node.id": str(broker.id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{of_all['listeners']},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "listener.security.protocol.map": f"{of_all['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
        "share.coordinator.state.topic.replication.factor": of_all["default.replication.factor"],
        "share.coordinator.state.topic.min.isr": of_all["min.insync.replicas"],
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }


def zookeeper_mode(broker: Broker, *, advertised: str, zookeeper: str, brokers: int) -> dict[str, str]:
    """Returns server.properties of one of `brokers` brokers of ZooKeeper mode, which Kafka has up to 3.9.

    Args:
        broker: the node.
        advertised: the "host:port" that clients are told.
        zookeeper: the ZooKeeper server's "host:port".
        brokers: how many there are.
    """
    return _settings(broker, advertised, brokers) | {
        "broker.id": str(broker.id),
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }


def with_listeners(settings: Mapping[str, str], ports: Mapping[str, int], protocols: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a node with further listeners for clients.

    Args:
        settings: those that `kraft` or `zookeeper_mode` returned.
        ports: of each listener.
        protocols: the security protocol of each.
    """
    named = {
        "listeners": [f"{name}://127.0.0.1:{port}" for name, port in ports.items()],
        "advertised.listeners": [f"{name}://{LISTENER_HOST}:{port}" for name, port in ports.items()],
        "listener.security.protocol.map": [f"{name}:{protocols[name]}" for name in ports],
    }
    return {**settings, **{option: ",".join([settings[option], *more]) for option, more in named.items()}}


def _settings(broker: Broker, advertised: str, brokers: int) -> dict[str, str]:
    """Returns what both modes need.

    Brokers talk to each other on a listener of their own, so that a proxy between clients and a broker never touches replication.
    """
    internal = f"INTERNAL://127.0.0.1:{broker.internal_port}"
    replicas = min(3, brokers)
    in_sync = max(1, replicas - 1)
    return {
        "inter.broker.listener.name": "INTERNAL",
        "listeners": f"CLIENT://127.0.0.1:{broker.client_port},{internal}",
        "advertised.listeners": f"CLIENT://{advertised},{internal}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "log.dirs": str(broker.log_dir),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "4",  # Kafka's 50 cost a second of the first consumer group on a small machine
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.check.interval.ms": "86400000",  # tests send records whose times are long ago
        "log.cleaner.dedupe.buffer.size": "8388608",  # Kafka's 128 MB would be a quarter of the heap given here
    }
