"""Up to 1,000 workers against three real brokers: what each one costs, how they start, and how they return to a broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks.environment import BROKER_SETTINGS, CHECKOUT
from benchmarks.pictures import keep, kept, machine
from benchmarks.scale import worker_figures
from benchmarks.scale.crowd import Crowd, Event
from benchmarks.scale.worker_figures import Sample
from tests.kafka.cluster import KafkaCluster

SAMPLES = CHECKOUT / "docs" / "pictures" / "scale_workers.csv"
KILLED = 1
PARTITIONS = 12
# Kafka's default is 5 minutes, which is longer than this measurement.
METADATA_MAX_AGE_MS = 10_000
ROWS_PER_S = 300  # at most, of all workers together; each sends one a second or less
SETTLE_S = 1.5
READ_S = 60.0
_ESTABLISHED = "01"  # in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. idle_s, active_s: windows in which CPU is measured. calm_s, quiet_s: after the restart."""

    workers: tuple[int, ...]
    idle_s: float
    active_s: float
    calm_s: float
    quiet_s: float


FULL = Plan((1, 10, 100, 300, 1_000), idle_s=4.0, active_s=6.0, calm_s=10.0, quiet_s=20.0)
QUICK = Plan((1, 40), idle_s=1.0, active_s=2.0, calm_s=2.0, quiet_s=5.0)


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes use together, and when this was seen."""

    at: float
    rss_kib: float
    threads: int
    files: int
    cpu_ms: float

    @classmethod
    def of(cls, pids: Iterable[int]) -> Usage:
        processes = [psutil.Process(pid) for pid in pids]
        times = [process.cpu_times() for process in processes]
        return cls(
            time.monotonic(),
            sum(process.memory_info().rss for process in processes) / 1024,
            sum(process.num_threads() for process in processes),
            sum(process.num_fds() for process in processes),
            sum(one.user + one.system for one in times) * 1000,
        )


def tables() -> str:
    """Returns the Markdown tables of docs/measurements.md."""
    return worker_figures.made_tables(*kept(SAMPLES, Sample))


def measure(quick: bool, folder: Path, plan: Plan | None = None) -> None:
    """Writes scale_workers.csv and scale_workers.svg into `folder`.

    Raises:
        RuntimeError: A row failed, was lost or was doubled.
    """
    plan = plan or (QUICK if quick else FULL)
    found: list[Sample] = []
    with KafkaCluster(3, BROKER_SETTINGS) as cluster:
        for workers in plan.workers:
            found += _measured(cluster, workers, plan, with_timelines=workers == max(plan.workers))
    measured_on = machine()
    keep(folder / "scale_workers.csv", measured_on, found)
    worker_figures.draw(folder / "scale_workers.svg", measured_on, found)
    for one in found:
        if one.figure in ("rows lost", "rows doubled") and one.value:
            raise RuntimeError(f"{one.workers:,} workers: {one.value:,.0f} {one.figure}")


def _measured(cluster: KafkaCluster, workers: int, plan: Plan, *, with_timelines: bool) -> list[Sample]:
    topic = cluster.create_topic(f"workers-{workers}-{time.time_ns()}", PARTITIONS)
    with Crowd(cluster.bootstrap_servers, topic, workers, METADATA_MAX_AGE_MS) as crowd:
        empty = Usage.of(crowd.pids)
        figures = _storm(crowd, workers, "start", "start")
        figures |= _costs(crowd, cluster, workers, plan, empty)
        events, killed = _restart(crowd, cluster, workers, plan, topic, figures)
        crowd.call("close")
        crowd.call("take_events")
        figures |= _storm(crowd, workers, "transactions", "exactly-once")
    found = [Sample(workers, figure, round(value, 4)) for figure, value in figures.items()]
    return found + (worker_figures.timelines(workers, events, killed) if with_timelines else [])


def _storm(crowd: Crowd, workers: int, call: str, step: str) -> dict[str, float]:
    """Lets all workers begin at one moment. Returns the seconds until all are done, and their requests."""
    done = crowd.call(call, time.monotonic() + 0.5)
    return {f"{step} s": max(max(part) for part in done)} | worker_figures.requests(_events(crowd), workers, step)


def _events(crowd: Crowd) -> list[Event]:
    return sorted(event for part in crowd.call("take_events") for event in part)


def _costs(crowd: Crowd, cluster: KafkaCluster, workers: int, plan: Plan, empty: Usage) -> dict[str, float]:
    """Measures idle workers, then active ones, which go on sending."""
    time.sleep(SETTLE_S)
    idle = Usage.of(crowd.pids)
    connections = _connections(cluster)
    time.sleep(plan.idle_s)
    idle_end = Usage.of(crowd.pids)
    every_s = max(1.0, workers / ROWS_PER_S)
    crowd.call("begin", every_s)
    time.sleep(SETTLE_S)
    active = Usage.of(crowd.pids)
    time.sleep(plan.active_s)
    active_end = Usage.of(crowd.pids)
    return {
        "connections": connections,
        "threads": (idle.threads - empty.threads) / workers,
        "files": (idle.files - empty.files) / workers,
        "idle KiB": (idle_end.rss_kib - empty.rss_kib) / workers,
        "active KiB": (active_end.rss_kib - empty.rss_kib) / workers,
        "idle ms/s": (idle_end.cpu_ms - idle.cpu_ms) / (idle_end.at - idle.at) / workers,
        "active ms/s": (active_end.cpu_ms - active.cpu_ms) / (active_end.at - active.at) / workers,
        "rows/s": workers / every_s,
        "broker MiB": max(Usage.of([cluster.pid(node)]).rss_kib / 1024 for node in cluster.broker_ids),
    }


def _restart(
    crowd: Crowd, cluster: KafkaCluster, workers: int, plan: Plan, topic: str, figures: dict[str, float]
) -> tuple[list[Event], float]:
    """Kills a broker and starts it again while rows are sent. Adds to `figures`. Returns what was seen since the kill."""
    crowd.call("take_events")
    dropped = _dropped()
    killed = time.monotonic()
    cluster.restart(KILLED)
    figures["down s"] = time.monotonic() - killed
    time.sleep(plan.calm_s)
    quiet = time.monotonic()
    time.sleep(plan.quiet_s)
    end = time.monotonic()
    finished = crowd.call("finish")
    if errors := [error for _, _, part in finished for error in part]:
        raise RuntimeError(f"{workers:,} workers: {len(errors):,} rows failed: {errors[0]}")
    events = _events(crowd)
    figures["SYNs dropped"] = _dropped() - dropped
    figures |= worker_figures.after_restart(events, [row for rows, _, _ in finished for row in rows], workers, killed, quiet, end)
    sent = {number: rows for _, part, _ in finished for number, rows in part.items()}
    figures |= worker_figures.judged(sent, _read(cluster, topic))
    return events, killed


def _read(cluster: KafkaCluster, topic: str) -> Counter[str]:
    """Returns how often each value is in the topic, as librdkafka reads it."""
    consumer = Consumer({"bootstrap.servers": cluster.direct_servers, "group.id": "workers", "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        missing = sum(consumer.get_watermark_offsets(place, timeout=READ_S)[1] for place in places)
        consumer.assign(places)
        read: Counter[str] = Counter()
        deadline = time.monotonic() + READ_S
        while missing > 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"topic {topic}: {missing:,} records could not be read within {READ_S:g} s")
            messages = consumer.consume(min(missing, 1_000), timeout=1.0)
            read.update(_value(message.value()) for message in messages if message.error() is None)
            missing -= sum(message.error() is None for message in messages)
        return read
    finally:
        consumer.close()


def _value(value: str | bytes | None) -> str:
    assert isinstance(value, bytes)
    return value.decode()


def _connections(cluster: KafkaCluster) -> float:
    """Returns how many client connections a broker has on average, as the system tells."""
    ports = {int(cluster.address(node).rpartition(":")[2]) for node in cluster.broker_ids}
    lines = [line.split() for name in ("tcp", "tcp6") for line in _lines(f"/proc/net/{name}")[1:]]
    return sum(int(line[1].rpartition(":")[2], 16) in ports for line in lines if line[3] == _ESTABLISHED) / len(ports)


def _dropped() -> int:
    """Returns how many connection attempts were dropped on this machine because a listener's backlog was full."""
    names, values = (line.split() for line in _lines("/proc/net/netstat") if line.startswith("TcpExt:"))
    return int(dict(zip(names, values, strict=True))["ListenDrops"])


def _lines(path: str) -> Sequence[str]:
    return Path(path).read_text(encoding="ascii").splitlines()
