"""A real Kafka cluster on free loopback ports, started for tests and removed after them."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kafka import java, kafka
from tests.kafka.broker import LISTENER_HOST, Broker, kraft, with_listeners, zookeeper_mode
from tests.kafka.brokers import Brokers
from tests.kafka.class_archive import QUICK_START
from tests.kafka.guardian import Guardian
from tests.kafka.ports import free_ports
from tests.kafka.versions import DEFAULT, has_default_replication, jars_of

TMPFS = Path("/dev/shm")
TMPFS_BYTES_WANTED = 2 * 1024**3
# One that a benchmark measures against runs as Kafka's own scripts start it.
FULL_SPEED = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
# How often a cluster is started whose ports another program takes before its servers do.
STARTS = 3


class KafkaCluster(Brokers):
    """Real Kafka that runs from its constructor to `stop()` or the end of a `with`. If the process dies, a guardian ends it.

    Not thread-safe: only the thread that created it kills, pauses and stops.
    """

    def __init__(
        self,
        brokers: int = 1,
        overrides: Mapping[str, str] | None = None,
        *,
        version: str = DEFAULT,
        zookeeper: bool = False,
        advertised: Mapping[int, str] | None = None,
        features: Mapping[str, int] | None = None,
        listeners: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        java_options: Sequence[str] = QUICK_START,
        classes: Path | None = None,
        deadline_s: float = 90.0,
    ) -> None:
        """Node ids count from 1.

        overrides: broker settings, for every node, over those of broker.py.
        version: Kafka's, one of `versions.POMS`. zookeeper: in ZooKeeper mode, which Kafka has up to 3.9; else KRaft.
        advertised: node id -> "host:port" that the node tells its clients instead of its own address: a proxy's.
        features: finalized levels, such as {"transaction.version": 0}; this release's own for all others. Of KRaft only.
        listeners: further ones for clients, name -> security protocol, each on a port of its own: `listener(name)` has it.
        heap_mb: of each node. java_options: QUICK_START or, for benchmarks, FULL_SPEED.
        classes: a folder of further classes, such as plugins that the settings name.
        deadline_s: how long they may take to be ready; then TimeoutError with their logs' tails.
        """
        jars_of(version)  # first, as they may have to be downloaded: that is no part of the deadline
        self._protocols = dict(listeners or {})
        if not has_default_replication(version):
            self.default_replication = min(3, brokers)
        options = [f"-Xms{heap_mb // 2}m", f"-Xmx{heap_mb}m", "-Djava.awt.headless=true", *java_options]
        for left in reversed(range(STARTS)):
            own, more, (zookeeper_port,) = self._ports(brokers)
            self._folder = data_folder()
            self._guardian = Guardian()
            self._guardian.watch_folder(self._folder)
            self._brokers = {
                node: Broker(node, ports, self._folder, self._guardian, options, version, classes)
                for node, ports in enumerate(own, 1)
            }
            self._listeners = {node: dict(zip(self._protocols, ports, strict=True)) for node, ports in enumerate(more, 1)}
            self._zookeeper: ZooKeeper | None = None
            addresses = {node: self.address(node) for node in self._brokers} | dict(advertised or {})
            super().__init__(",".join(addresses[node] for node in self._brokers), ",".join(map(self._internal, self._brokers)))
            try:
                if zookeeper:
                    self._zookeeper = ZooKeeper(zookeeper_port, self._folder, self._guardian, version)
                self._configure(addresses, overrides or {})
                if not zookeeper:
                    self._format(features or {})
                self._start_all(deadline_s)
                return
            except BaseException as error:
                again = left > 0 and isinstance(error, Exception) and self._found_a_port_taken()
                self.stop()
                if not again:
                    raise

    def _ports(self, brokers: int) -> tuple[list[tuple[int, int, int]], list[list[int]], list[int]]:
        """Chooses ports: of each broker for clients, other brokers and controllers; of its further listeners; ZooKeeper's."""
        more = len(self._protocols)
        ports = free_ports((3 + more) * brokers + 1)
        own = [(ports[at], ports[at + 1], ports[at + 2]) for at in range(0, 3 * brokers, 3)]
        return own, [ports[3 * brokers + more * node :][:more] for node in range(brokers)], ports[-1:]

    def _found_a_port_taken(self) -> bool:
        """Returns whether a server has ended because another program had taken its port since that was chosen."""
        outputs = [broker.output for broker in self._brokers.values()]
        if self._zookeeper is not None:
            outputs.append(self._zookeeper.output)
        return any("java.net.BindException" in output.read_text(errors="replace") for output in outputs if output.exists())

    def _configure(self, addresses: Mapping[int, str], overrides: Mapping[str, str]) -> None:
        voters = ",".join(f"{node}@127.0.0.1:{broker.controller_port}" for node, broker in self._brokers.items())
        count = len(self._brokers)
        for node, broker in self._brokers.items():
            if self._zookeeper is not None:
                own = zookeeper_mode(broker, advertised=addresses[node], zookeeper=self._zookeeper.address, brokers=count)
            else:
                own = kraft(broker, advertised=addresses[node], voters=voters, brokers=count)
            broker.configure(with_listeners(own, self._listeners[node], self._protocols) | dict(overrides))

    def _format(self, features: Mapping[str, int]) -> None:
        # urlsafe base64 may begin with "-", which the tool would take for an option; Kafka draws again as well (Uuid.randomUuid).
        cluster_id = "-"
        while cluster_id.startswith("-"):
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with ThreadPoolExecutor(len(self._brokers)) as pool:
            list(pool.map(lambda broker: broker.format(cluster_id, features), self._brokers.values()))

    def _start_all(self, deadline_s: float) -> None:
        for broker in self._brokers.values():
            broker.start()
        self.wait_for(self._all_there, f"{len(self._brokers)} broker(s) ready", deadline_s)

    def _all_there(self) -> bool:
        dead = [node for node, broker in self._brokers.items() if not broker.alive]
        if dead:
            raise RuntimeError(self.explain(f"broker(s) {dead} ended while starting"))
        if set(self.metadata(timeout_s=1.0).brokers) != set(self._brokers):  # short: a broker may have died meanwhile
            return False
        # In ZooKeeper mode a broker is listed before it listens: KafkaServer.startup registers, then starts the acceptors.
        return all(listens(self.address(node)) for node in self._brokers)

    @property
    def broker_ids(self) -> list[int]:
        return list(self._brokers)

    def address(self, broker_id: int) -> str:
        return f"127.0.0.1:{self._brokers[broker_id].client_port}"

    def listener(self, name: str) -> str:
        """Returns the address of an additional listener: "localhost:port" of each broker."""
        return ",".join(f"{LISTENER_HOST}:{ports[name]}" for ports in self._listeners.values())

    def _internal(self, broker_id: int) -> str:
        return f"127.0.0.1:{self._brokers[broker_id].internal_port}"

    def pid(self, broker_id: int) -> int:
        return self._brokers[broker_id].pid

    def log_dir(self, broker_id: int) -> Path:
        return self._brokers[broker_id].log_dir

    def kill(self, broker_id: int) -> None:
        """Sends SIGKILL and waits for the process. The others notice when their connections break or its session ends."""
        self._brokers[broker_id].kill()

    def restart(self, broker_id: int, *, deadline_s: float = 60.0) -> None:
        self.kill(broker_id)
        self._start_again(broker_id, deadline_s)
        # Asked itself: the others list it until its old session ends, whether it is there or not.
        itself = kafka.Kafka(self._internal(broker_id))
        self.wait_for(lambda: broker_id in itself.metadata().brokers, f"broker {broker_id} back after a restart", deadline_s)

    def _start_again(self, broker_id: int, deadline_s: float) -> None:
        if self._zookeeper is not None:  # a broker that finds itself registered ends
            registered = self._zookeeper.has_session_of
            self.wait_for(lambda: not registered(broker_id), f"the end of broker {broker_id}'s session", deadline_s)
        self._brokers[broker_id].start()

    def pause(self, broker_id: int) -> None:
        """Sends SIGSTOP: the broker keeps its connections and answers nothing."""
        self._brokers[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        self._brokers[broker_id].resume()

    def heal(self, *, deadline_s: float = 90.0) -> None:
        for node, broker in self._brokers.items():
            if broker.alive:
                broker.resume()
            else:
                self._start_again(node, deadline_s)
        self.wait_for(lambda: self._all_there() and kafka.in_sync(self.metadata()), "all brokers and replicas back", deadline_s)

    def stop(self) -> None:
        """Kills every node and removes all data. A second call does nothing."""
        for broker in self._brokers.values():
            broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._guardian.close()

    def explain(self, message: str) -> str:
        tails = [f"--- broker {node} said last:\n{broker.output_tail()}" for node, broker in self._brokers.items()]
        return "\n".join([message, *tails])


def listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


def data_folder() -> Path:
    """Creates a folder, in memory if there is space. With many partitions a disk would limit the speed, not the client."""
    roomy = TMPFS.is_dir() and os.access(TMPFS, os.W_OK) and shutil.disk_usage(TMPFS).free >= TMPFS_BYTES_WANTED
    return Path(tempfile.mkdtemp(prefix="spark-kafka-sink-", dir=TMPFS if roomy else None))


# Brokers ask for their session timeout; the server grants at least two ticks, at most twenty.
TICK_MS = 500
ZOOKEEPER_OPTIONS = (
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.admin.enableServer=false",
)


class ZooKeeper:
    """A server out of the jars of a 3.x broker. It may still be starting when the constructor returns: brokers wait for it."""

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
                options=ZOOKEEPER_OPTIONS,
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
