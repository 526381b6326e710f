"""One worker against topics of 1 to 50,000 partitions: CPU per row, memory, requests and metadata.

The embedded broker runs in a separate process, and each point in a new client process, as in benchmarks/curves.py. CPU time is
that of the client. Wall time depends on the broker, which is Python.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from benchmarks.environment import CHECKOUT
from benchmarks.pictures import COLORS, keep, kept, machine, saved_figure
from docs.markdown import table
from spark_kafka_sink.broker import EmbeddedBroker
from spark_kafka_sink.options.sink_options import TASK_LINGER_MS
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark.task.coalescer import ArrowBatchCoalescer
from spark_kafka_sink.spark.task.columns import TopicRecords

PICTURES = CHECKOUT / "docs" / "pictures"
KEYS, NO_KEYS = "random keys", "no keys"
COUNTS, QUICK_COUNTS = (1, 10, 100, 1_000, 10_000, 50_000), (1, 100, 1_000, 10_000)
BATCH_ROWS = 10_000
KEY_BYTES, VALUE_BYTES = 10, 90
# Fewer where each takes long: the embedded broker takes 0.2 ms for a batch, and with 50,000 partitions a batch has two rows.
ROWS, FEW_ROWS, FEW_ROWS_FROM = 500_000, 100_000, 10_000
QUICK_ROWS = 50_000
REPEATS = 2
MOST_AT_ONCE = 10_000  # partitions that Kafka creates for one request
REFRESHES = 5
REFRESH_MS = 400


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one point, after a run that does not count.

    cpu_us_per_row: CPU time of the client. batch_bytes: an average batch as sent. memory_mib: the most that the client had in
    memory, less what it had before its producer. known_ms and metadata_bytes: wall time until a new producer knew the topic, and
    what it had received then. refresh_ms: CPU time of one later update of all metadata, without rows.
    """

    rows_have: str
    partitions: int
    cpu_us_per_row: float
    batch_bytes: int
    requests_per_mb: float
    memory_mib: float
    known_ms: float
    metadata_bytes: int
    refresh_ms: float


def measure(quick: bool, folder: Path) -> None:
    """Writes scale_partitions.csv and scale_partitions.svg into the folder."""
    samples: list[Sample] = []
    with _broker() as broker:
        servers: str = broker.submit(_start).result()
        for partitions in QUICK_COUNTS if quick else COUNTS:
            rows = QUICK_ROWS if quick else FEW_ROWS if partitions >= FEW_ROWS_FROM else ROWS
            for rows_have in (KEYS, NO_KEYS):
                topic: str = broker.submit(_create, partitions).result()
                with _process() as client:
                    found: list[Sample] = client.submit(
                        measured, servers, topic, partitions, rows_have, rows, 1 if quick else REPEATS
                    ).result()
                broker.submit(_delete, topic).result()
                samples += found
                for one in found:
                    said = f"{one.cpu_us_per_row:8.3f} us CPU/row {one.batch_bytes:9,} B a batch {one.memory_mib:7.1f} MiB"
                    print(f"{one.partitions:8,} partitions, {one.rows_have:12} {said}", file=sys.stderr, flush=True)
    measured_on = machine().partition("; Kafka")[0]
    keep(folder / "scale_partitions.csv", f"{measured_on}; embedded broker", samples)
    draw(folder)


def _process() -> ProcessPoolExecutor:
    """Returns a process that shares nothing with this one."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


@contextmanager
def _broker() -> Iterator[ProcessPoolExecutor]:
    with _process() as process:
        try:
            yield process
        finally:
            process.submit(_stop).result()


# In the broker's process

_brokers: list[EmbeddedBroker] = []


def _start() -> str:
    _brokers.append(EmbeddedBroker(3))
    _brokers[0].start()
    return _brokers[0].bootstrap_servers


def _stop() -> None:
    for broker in _brokers:
        broker.stop()


def _create(partitions: int) -> str:
    """Creates a topic with three replicas, in steps, because Kafka refuses more than 10,000 partitions in one request."""
    (broker,) = _brokers
    name = broker.create_topic(f"scale-{time.time_ns()}", min(partitions, MOST_AT_ONCE), replication_factor=3)
    for count in range(2 * MOST_AT_ONCE, partitions + 1, MOST_AT_ONCE):
        broker.cluster.create_partitions(name, count)
    return name


def _delete(topic: str) -> None:
    _brokers[0].cluster.delete_topic(topic)


# In a client's process


def measured(servers: str, topic: str, partitions: int, rows_have: str, rows: int, repeats: int) -> list[Sample]:
    """Measures one point: metadata, then `rows` rows several times, after a run that does not count."""
    batches = _batches(rows, keyed=rows_have == KEYS)
    refresh_ms = _refresh_ms(servers, topic)
    before = _status_mib("VmRSS")
    samples = []
    with Producer({"bootstrap.servers": servers, "linger.ms": TASK_LINGER_MS}) as producer:
        begun = perf_counter()
        producer.partitions_for(topic)
        known_ms = (perf_counter() - begun) * 1000
        received = sum(node["incoming-byte-total"] for node in producer.metrics()["producer-node-metrics"].values())
        for number in range(repeats + 1):
            requests, cpu = _requests(producer), process_time()
            with producer.scope() as scope:
                records = (TopicRecords(topic, batch) for batch in batches)
                for coalesced in ArrowBatchCoalescer(scope.rows_per_append, TASK_LINGER_MS).coalesced(records):
                    scope.append(topic, coalesced.columns())
                scope.flush()
                report = scope.report()
            cpu, requests = process_time() - cpu, _requests(producer) - requests
            if number:
                samples.append(
                    Sample(
                        rows_have=rows_have,
                        partitions=partitions,
                        cpu_us_per_row=round(cpu / report.records * 1e6, 4),
                        batch_bytes=round(report.compressed_bytes / report.batches),
                        requests_per_mb=round(requests / report.bytes * 1e6, 3),
                        memory_mib=round(_status_mib("VmHWM") - before, 1),
                        known_ms=round(known_ms, 1),
                        metadata_bytes=round(received),
                        refresh_ms=round(refresh_ms, 2),
                    )
                )
    return samples


def _requests(producer: Producer) -> float:
    return producer.metrics()["producer-metrics"]["request-total"]


def _refresh_ms(servers: str, topic: str) -> float:
    """Returns the CPU time of an update of metadata for its age, on average, in ms."""
    with Producer({"bootstrap.servers": servers, "metadata.max.age.ms": REFRESH_MS}) as producer:
        producer.partitions_for(topic)
        before, cpu = _requests(producer), process_time()
        deadline = time.monotonic() + 60
        while (done := _requests(producer) - before) < REFRESHES and time.monotonic() < deadline:
            time.sleep(REFRESH_MS / 1000)
        return (process_time() - cpu) / max(done, 1) * 1000


def _batches(rows: int, *, keyed: bool) -> list[RecordColumns]:
    key = _column(rows, KEY_BYTES) if keyed else None
    columns = RecordColumns(rows, value=_column(rows, VALUE_BYTES if keyed else KEY_BYTES + VALUE_BYTES), key=key)
    return [columns.slice(start, min(BATCH_ROWS, rows - start)) for start in range(0, rows, BATCH_ROWS)]


def _column(rows: int, width: int) -> pa.Array:
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    data = digits[np.random.default_rng(width).integers(0, 16, size=(rows, width), dtype=np.uint8)]
    offsets = np.arange(0, data.size + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _status_mib(name: str) -> float:
    """Returns VmRSS, what this process has in memory, or VmHWM, the most that it ever had."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {name}; scale is measured on Linux")


# Samples, tables and picture


def tables(folder: Path = PICTURES) -> str:
    """Returns a Markdown table of the samples in docs/pictures: rows with and without keys, and metadata. Figures are medians."""
    measured_on, samples = kept(folder / "scale_partitions.csv", Sample)
    heads = ["partitions"]
    for rows_have in (KEYS, NO_KEYS):
        heads += [f"{rows_have}: CPU, µs per row", "bytes of a batch", "memory, MiB"]
    heads += ["bytes of metadata", "until known, ms", "CPU of an update, ms"]
    lines = []
    for partitions in dict.fromkeys(one.partitions for one in samples):
        line = [f"{partitions:,}"]
        for rows_have in (KEYS, NO_KEYS):
            own = [one for one in samples if (one.rows_have, one.partitions) == (rows_have, partitions)]
            cpu, batch = (median(getattr(one, name) for one in own) for name in ("cpu_us_per_row", "batch_bytes"))
            line += [f"{cpu:.2f}", f"{batch:,.0f}", f"{max(one.memory_mib for one in own):.0f}"]
        own = [one for one in samples if one.partitions == partitions]
        size, known, refresh = (
            median(getattr(one, name) for one in own) for name in ("metadata_bytes", "known_ms", "refresh_ms")
        )
        lines.append([*line, f"{size:,.0f}", f"{known:,.0f}", f"{refresh:,.1f}"])
    return f"{table(heads, lines)}\nMeasured on {measured_on}.\n"


def draw(folder: Path) -> None:
    """Draws scale_partitions.svg from the CSV file beside it."""
    measured_on, samples = kept(folder / "scale_partitions.csv", Sample)
    with saved_figure(folder / "scale_partitions.svg", measured_on) as axes:
        for one, name, label in (
            (axes[0], "cpu_us_per_row", "CPU, µs per row"),
            (axes[1], "batch_bytes", "size of a batch as sent, bytes"),
        ):
            for rows_have, color in zip((KEYS, NO_KEYS), COLORS, strict=False):
                points: dict[int, list[float]] = {}
                for sample in samples:
                    if sample.rows_have == rows_have:
                        points.setdefault(sample.partitions, []).append(getattr(sample, name))
                one.plot(list(points), [median(values) for values in points.values()], "o-", color=color, label=rows_have)
            one.set_xscale("log")
            one.set_yscale("log")
            one.set_xlabel("partitions of the topic (rows of 100 bytes)")
            one.set_ylabel(label)
            one.legend(frameon=False)
