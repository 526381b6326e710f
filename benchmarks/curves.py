"""`python -m benchmarks.curves`: measures the curves of docs/performance.md, and draws them.

Each curve is kept as a CSV file and an SVG picture in docs/pictures/. Points are measured without Spark, through the calls that a
Spark task makes, against a real Kafka. CPU time is that of the producer's process: on a shared machine it repeats, and wall time
does not. Each point has a new process, because the peak of a process's memory never falls.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from benchmarks import pictures
from benchmarks.data import KEY_BYTES
from benchmarks.environment import CHECKOUT, Topics, broker
from benchmarks.pictures import Curve, Sample
from spark_kafka_sink.options.sink_options import TASK_LINGER_MS
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark.task.coalescer import ArrowBatchCoalescer
from spark_kafka_sink.spark.task.columns import TopicRecords

OUTPUT = CHECKOUT / "docs" / "pictures"

# Rows of an Arrow batch, as Spark makes them: by default 10,000, and fewer where they would exceed some MB.
BATCH_ROWS = 10_000
BATCH_BYTES = 8 * 2**20
# As many different Arrow batches are prepared; a run goes over them again and again.
PREPARED_BATCHES = 5
# The same bytes for each point, so that none is over in a moment; within these many rows.
RUN_BYTES = 40 * 10**6
LEAST_ROWS, MOST_ROWS = 2_000, 1_000_000
WARM_UPS = 1


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve. series: its line. x: where it is on the axis. settings: Kafka's, by name."""

    series: str
    x: float
    value_bytes: int = 100
    partitions: int = 8
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        batch = batch_rows(self.value_bytes)
        return max(batch, min(MOST_ROWS, max(LEAST_ROWS, RUN_BYTES // (self.value_bytes + KEY_BYTES))) // batch * batch)


def points(curve: Curve) -> list[Point]:
    """Returns the points of a curve."""
    return _POINTS[curve]()


def _partitions() -> list[Point]:
    counts = (1, 3, 8, 32, 100, 300, 1000)
    return [
        Point(codec, count, partitions=count, settings={"compression.type": codec})
        for codec in ("none", "lz4")
        for count in counts
    ]


def _row_size() -> list[Point]:
    sizes = (10, 30, 100, 300, 1_000, 3_000, 10_000, 100_000)
    codecs = ("none", "lz4", "zstd")
    return [Point(codec, size, value_bytes=size, settings={"compression.type": codec}) for codec in codecs for size in sizes]


def _codec() -> list[Point]:
    codecs = ("none", "lz4", "snappy", "zstd", "gzip")
    return [
        Point(f"{size:,} B", number, value_bytes=size, settings={"compression.type": codec})
        for size in (100, 1_000)
        for number, codec in enumerate(codecs)
    ]


def _linger() -> list[Point]:
    return [
        Point(f"{count} partitions", linger, partitions=count, settings={"linger.ms": linger, "compression.type": "lz4"})
        for count in (8, 1000)
        for linger in (1, 5, 30, 100, 1000)
    ]


def _memory() -> list[Point]:
    return [
        Point(f"rows of {size:,} B", mib, value_bytes=size, settings={"buffer.memory": mib * 2**20})
        for size in (100, 1_000)
        for mib in (4, 8, 16, 32)
    ]


_POINTS: Mapping[Curve, Callable[[], list[Point]]] = {
    Curve.PARTITIONS: _partitions,
    Curve.ROW_SIZE: _row_size,
    Curve.CODEC: _codec,
    Curve.LINGER: _linger,
    Curve.MEMORY: _memory,
}


def batch_rows(value_bytes: int) -> int:
    """Returns how many rows an Arrow batch of the benchmark has."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES // value_bytes))


def json_values(rows: int, size: int, seed: int) -> pa.Array:
    """Returns `rows` JSON texts of `size` bytes, as an event would have: names that repeat, numbers that do not."""
    numbers = np.random.default_rng(seed).integers(0, 10**9, size=(rows, 4))
    texts = []
    for number in numbers.tolist():
        event = f'{{"id":{number[0]:09d},"user":"u{number[1] % 100_000:05d}","at":{1_700_000_000 + number[2] % 10**6},"amount":'
        fields = [f"{number[3] % 100_000 / 100:07.2f}"]
        filled = len(event) + len(fields[0])
        while filled < size:
            fields.append(f',"field{len(fields):02d}":"{number[len(fields) % 4] * len(fields) % 10**9:09d}"')
            filled += len(fields[-1])
        texts.append((event + "".join(fields))[: size - 1] + "}")
    return pa.array(texts, pa.string())


def _batches(point: Point) -> list[RecordColumns]:
    rows = batch_rows(point.value_bytes)
    batches = []
    for number in range(min(PREPARED_BATCHES, point.rows // rows)):
        keys = np.random.default_rng(number).integers(0, 10**9, size=rows).tolist()
        key = pa.array([f"{one:0{KEY_BYTES}d}" for one in keys], pa.string())
        batches.append(RecordColumns(rows, value=json_values(rows, point.value_bytes, number), key=key))
    return batches


def measure(point: Point, bootstrap_servers: str, topic: str, repeats: int) -> list[Sample]:
    """Writes the point's rows `repeats` times, after a run that does not count. Runs in a separate process."""
    batches = _batches(point)
    before = _status_bytes("VmRSS")
    settings = {"bootstrap.servers": bootstrap_servers, "linger.ms": TASK_LINGER_MS, **point.settings}
    samples = []
    with Producer(settings) as producer:
        for number in range(WARM_UPS + repeats):
            sample = _run(producer, point, topic, batches, before)
            if number >= WARM_UPS:
                samples.append(sample)
    return samples


def _run(producer: Producer, point: Point, topic: str, batches: Sequence[RecordColumns], before: int) -> Sample:
    turns = point.rows // batch_rows(point.value_bytes)
    cpu, started = process_time(), perf_counter()
    with producer.scope() as scope:
        records = (TopicRecords(topic, batches[number % len(batches)]) for number in range(turns))
        linger_ms = int(str(point.settings.get("linger.ms", TASK_LINGER_MS)))
        for coalesced in ArrowBatchCoalescer(scope.rows_per_append, linger_ms).coalesced(records):
            scope.append(topic, coalesced.columns())
        scope.flush()
        report = scope.report()
    spent, seconds = process_time() - cpu, perf_counter() - started
    return Sample(
        series=point.series,
        x=point.x,
        rows=report.records,
        seconds=round(seconds, 4),
        cpu_us_per_row=round(spent / report.records * 1e6, 4),
        batch_bytes=round(report.compressed_bytes / report.batches),
        wire_bytes_per_row=round(report.compressed_bytes / report.records, 2),
        memory_mib=round((_status_bytes("VmHWM") - before) / 2**20, 1),
    )


def _status_bytes(name: str) -> int:
    """Returns a size of this process from Linux: VmRSS is what it has in memory, VmHWM the most that it ever had."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}; the curves are measured on Linux")


def _measured(curve: Curve, topics: Topics, repeats: int) -> list[Sample]:
    samples: list[Sample] = []
    for point in points(curve):
        rows = point.rows * (WARM_UPS + repeats)
        with (
            topics.fresh(point.partitions, rows * (point.value_bytes + 64)) as topic,
            # spawn: a forked process would carry the locks of this one's threads.
            ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process,
        ):
            found = process.submit(measure, point, topics.kafka.bootstrap_servers, topic, repeats).result()
            topics.check_count(topic, rows)
        samples += found
        for one in found:
            said = f"{one.cpu_us_per_row:8.3f} us CPU/row {one.rows / one.seconds:12,.0f} rows/s {one.batch_bytes:9,} B a batch"
            print(f"{curve:10} {one.series:18} {one.x:8,g} {said} {one.memory_mib:7.1f} MiB", file=sys.stderr, flush=True)
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the curves that are asked for, unless only their pictures are, and draws them."""
    parser = argparse.ArgumentParser("python -m benchmarks.curves", description="The curves of docs/performance.md, measured.")
    names = [str(curve) for curve in Curve]
    parser.add_argument("--only", nargs="+", default=names, choices=names, help="these curves")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each point (3)")
    parser.add_argument("--draw", action="store_true", help="measure nothing; draw the pictures from the CSV files")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the CSV files and the pictures")
    asked = parser.parse_args(arguments)
    curves = [curve for curve in Curve if str(curve) in asked.only]
    asked.output.mkdir(parents=True, exist_ok=True)
    if not asked.draw:
        with broker() as topics:
            for curve in curves:
                pictures.keep(asked.output / f"{curve}.csv", pictures.machine(), _measured(curve, topics, asked.repeats))
    for curve in curves:
        pictures.draw(curve, asked.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
