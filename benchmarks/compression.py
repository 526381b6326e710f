"""`python -m benchmarks.compression`: how fast one core compresses batches, and how small, beside Java's client and librdkafka.

All contenders compress the same records and take turns. What counts is the CPU time of the thread that compresses, because other
programs may use the machine at the same time.

- This project: `records/compression.py`, called with the bytes of a batch.
- Java: the classes of kafka-clients that its producer uses, called with the same bytes (CompressBatches.java).
- librdkafka has no such call. Its producer sends the same records to the mock broker in its own process, with the codec and
  without. The difference in CPU time of its broker thread, which compresses, is what the codec costs. That thread also sends
  fewer bytes then, which makes librdkafka look a few per cent faster than its codec is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

import confluent_kafka
import numpy as np
import pyarrow as pa

from benchmarks.cost.cells import Format, Payload
from benchmarks.cost.rows import table
from benchmarks.pictures import machine
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import codec_of, compress
from spark_kafka_sink.records.encoder import encode_records
from tests.kafka.java import command

JAVA_PROGRAM: Final = Path(__file__).with_name("CompressBatches.java")
OURS: Final = "this project"
JAVA: Final = "Java"
LIBRDKAFKA: Final = "librdkafka"
CONTENDERS: Final = (OURS, JAVA, LIBRDKAFKA)
SIZES: Final = (512 * 1024, 16 * 1024)
LEVELS: Final[Mapping[str, Sequence[int]]] = {"lz4": (-2, -1, 0, 3), "zstd": (-1, 1, 3), "snappy": (0,), "gzip": (1, 6)}
# Java has no negative levels of lz4, and librdkafka has negative ones of no codec.
LACKING: Final = {(name, "lz4", level) for name in (JAVA, LIBRDKAFKA) for level in (-2, -1)} | {(LIBRDKAFKA, "zstd", -1)}
DATA: Final = ("JSON 100 B", "JSON 1 KB", "JSON 10 KB", "hexadecimal 100 B", "Avro 100 B", "Avro 1 KB")
_VALUE_BYTES: Final = {"100 B": 100, "1 KB": 1_000, "10 KB": 10_000}
_RECORD_OVERHEAD: Final = 32  # at least: a record's own fields and its key
_BYTES_PER_TURN: Final = 8 * 2**20
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is compressed, and how. batch_bytes: of its records."""

    data: str
    batch_bytes: int
    codec: str
    level: int

    def turns(self) -> int:
        """Returns how many batches a round compresses. gzip takes fewer, because it is slow."""
        return max(_BYTES_PER_TURN // self.batch_bytes // (8 if self.codec == "gzip" else 1), 1)


@dataclass(frozen=True, slots=True)
class Compressed:
    """CPU seconds of a batch, and its compressed size."""

    seconds: float
    size: int


@cache
def rows(data: str, total_bytes: int) -> RecordColumns:
    """Returns rows of about `total_bytes` bytes in all; the first ones are the same whatever their number."""
    kind, _, size = data.partition(" ")
    value_bytes = _VALUE_BYTES[size]
    count = total_bytes // value_bytes + 1
    made = table(Payload(value_bytes, Format.AVRO if kind == "Avro" else Format.JSON), count, seed=0)
    value = made["value"].combine_chunks().cast(pa.binary())
    if kind == "hexadecimal":
        digits = np.random.default_rng(0).bytes(count * value_bytes // 2).hex()
        value = pa.array([digits[start : start + value_bytes].encode() for start in range(0, len(digits), value_bytes)])
    return RecordColumns(count, value=value, key=made["key"].combine_chunks())


@cache
def batch(data: str, batch_bytes: int) -> bytes:
    """Returns the records of a batch as this project's producer encodes them."""
    columns = rows(data, batch_bytes)
    encoded = encode_records(columns, None, np.arange(columns.num_records, dtype=np.int32), None)
    return bytes(encoded.data[:batch_bytes])


def ours(case: Case) -> Compressed:
    codec, data = codec_of(case.codec), batch(case.data, case.batch_bytes)
    begun = time.thread_time()
    for _ in range(case.turns()):
        compressed = compress(codec, case.level, [data])
    return Compressed((time.thread_time() - begun) / case.turns(), len(compressed))


class JavaCompressor:
    """A Java program that compresses on request."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def __call__(self, case: Case) -> Compressed:
        file = self._folder / f"{case.data}-{case.batch_bytes}".replace(" ", "-")
        if not file.exists():
            file.write_bytes(batch(case.data, case.batch_bytes))
        asking, answering = self._process.stdin, self._process.stdout
        assert asking is not None
        assert answering is not None
        # lz4's default in Java is what others call level 0; its other levels are from 1 on.
        level = "-" if case.level == 0 else case.level
        asking.write(f"{case.codec} {level} {case.turns()} {file}\n")
        asking.flush()
        nanoseconds, _, size = answering.readline().partition(" ")
        if not size:
            raise RuntimeError(f"{JAVA_PROGRAM.name} ended at {case}")
        return Compressed(int(nanoseconds) / 1e9, int(size))


@contextmanager
def java_compressor() -> Iterator[JavaCompressor]:
    with tempfile.TemporaryDirectory(prefix="spark-kafka-sink-bench-") as folder:
        line = command(str(JAVA_PROGRAM))
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield JavaCompressor(process, Path(folder))
        finally:
            process.kill()
            process.communicate()


class LibrdkafkaProducer:
    """A producer of librdkafka with its mock broker, for one codec, level and size of a batch."""

    def __init__(self, codec: str, level: int, batch_bytes: int) -> None:
        self._sent_bytes = self._reports = 0
        before = _broker_threads()
        self._producer = confluent_kafka.Producer(
            {
                "test.mock.num.brokers": 1,
                "log_level": 4,
                "compression.type": codec,
                "compression.level": level,
                "batch.size": batch_bytes,
                "batch.num.messages": 1_000_000,
                "linger.ms": 10_000,  # flush() ends it
                "message.max.bytes": 10_000_000,
                "statistics.interval.ms": 50,
                "stats_cb": self._count,
            }
        )
        self._produce([(b"", b"")])  # connects, which starts the thread
        self._threads = _broker_threads() - before

    def _count(self, statistics: str) -> None:
        self._sent_bytes = sum(broker["txbytes"] for broker in json.loads(statistics)["brokers"].values())
        self._reports += 1

    def _produce(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            self._producer.produce("t", value, key, partition=0)
        if self._producer.flush(_TIMEOUT_S):
            raise TimeoutError(f"librdkafka's mock broker did not answer within {_TIMEOUT_S:.0f} s")

    def _sent(self) -> int:
        seen, deadline = self._reports, time.monotonic() + _TIMEOUT_S
        while self._reports < seen + 2:  # the first one may have begun before the last request
            if time.monotonic() > deadline:
                raise TimeoutError("librdkafka reported no statistics")
            self._producer.poll(0.05)
        return self._sent_bytes

    def send(self, records: Sequence[tuple[bytes, bytes]]) -> Compressed:
        """Returns the CPU seconds of the broker thread, and the bytes sent, for all of `records`."""
        sent, cpu = self._sent(), _cpu_s(self._threads)
        self._produce(records)
        cpu = _cpu_s(self._threads) - cpu
        return Compressed(cpu, self._sent() - sent)


def _broker_threads() -> set[Path]:
    """Returns the threads of librdkafka that talk to broker 1 of their cluster. They also compress."""
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        try:
            if (thread / "comm").read_text().startswith("rdk:broker1"):
                found.add(thread)
        except FileNotFoundError:  # it has ended in the meantime
            continue
    return found


def _cpu_s(threads: set[Path]) -> float:
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Librdkafka:
    """Measures librdkafka by the difference that a codec makes."""

    def __init__(self) -> None:
        self._producers: dict[tuple[str, int, int], LibrdkafkaProducer] = {}

    def __call__(self, case: Case) -> Compressed:
        total = case.turns() * case.batch_bytes
        columns = rows(case.data, total)
        assert columns.key is not None
        assert columns.value is not None
        values = columns.value.to_pylist()
        count = total // (len(values[0]) + _RECORD_OVERHEAD)
        keys = [key.encode() for key in columns.key.slice(0, count).to_pylist()]
        records = list(zip(keys, values, strict=False))
        plain = self._producer("none", 0, case.batch_bytes).send(records)
        packed = self._producer(case.codec, case.level, case.batch_bytes).send(records)
        share = case.batch_bytes / plain.size
        return Compressed((packed.seconds - plain.seconds) * share, round(packed.size * share))

    def _producer(self, codec: str, level: int, batch_bytes: int) -> LibrdkafkaProducer:
        key = (codec, level, batch_bytes)
        if key not in self._producers:
            self._producers[key] = LibrdkafkaProducer(*key)
        return self._producers[key]


def measured(cases: Sequence[Case], contenders: Sequence[str], rounds: int) -> dict[Case, dict[str, Compressed]]:
    """Returns the median of each contender. The order is reversed in every other round; the first round does not count."""
    results: dict[Case, dict[str, Compressed]] = {}
    with ExitStack() as stack:
        compressors: dict[str, Callable[[Case], Compressed]] = {OURS: ours, LIBRDKAFKA: Librdkafka()}
        if JAVA in contenders:
            compressors[JAVA] = stack.enter_context(java_compressor())
        for case in cases:
            there = [name for name in contenders if (name, case.codec, case.level) not in LACKING]
            runs: dict[str, list[Compressed]] = {name: [] for name in there}
            for number in range(rounds + 1):
                for name in there if number % 2 else reversed(there):
                    runs[name].append(compressors[name](case))
            results[case] = {
                name: Compressed(median(run.seconds for run in taken[1:]), taken[-1].size) for name, taken in runs.items()
            }
            print(line(case, results[case], contenders), file=sys.stderr, flush=True)
    return results


def line(case: Case, results: Mapping[str, Compressed], contenders: Sequence[str]) -> str:
    """Returns a case as a row of a Markdown table: MB/s of one core, and the size in per cent of the records."""
    codec = case.codec if case.codec == "snappy" else f"{case.codec} {case.level}"
    cells = [case.data, codec]
    for name in contenders:
        found = results.get(name)
        speed = "" if found is None else f"{case.batch_bytes / found.seconds / 1e6:,.0f}" if found.seconds > 0 else "?"
        cells += [speed, "" if found is None else f"{found.size / case.batch_bytes:.1%}"]
    return f"| {' | '.join(cells)} |"


def markdown(results: Mapping[Case, Mapping[str, Compressed]], contenders: Sequence[str]) -> str:
    """Returns a table for each size of a batch."""
    head = ["data", "codec and level", *(f"{name}{unit}" for name in contenders for unit in (", MB/s", ", size"))]
    parts = [f"Measured {machine()}."]
    for size in dict.fromkeys(case.batch_bytes for case in results):
        lines = [line(case, found, contenders) for case, found in results.items() if case.batch_bytes == size]
        rule = f"|{' --- |' * len(head)}"
        parts.append("\n".join([f"Batches of {size // 1024} KiB:", "", f"| {' | '.join(head)} |", rule, *lines]))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.compression", description="Speed and size of compressed batches.")
    parser.add_argument("--codecs", nargs="+", default=list(LEVELS), choices=list(LEVELS), help="these codecs")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA, help="these records")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS, help="these contenders")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), metavar="BYTES", help="batches of these sizes")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the medians are printed (%(default)s)")
    asked = parser.parse_args(arguments)
    cases = [
        Case(data, size, codec, level)
        for size in asked.sizes
        for data in asked.data
        for codec in asked.codecs
        for level in LEVELS[codec]
    ]
    print(markdown(measured(cases, asked.contenders, asked.rounds), asked.contenders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
