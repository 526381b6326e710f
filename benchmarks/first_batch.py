"""`python -m benchmarks.first_batch`: what the first micro-batch of a query costs, beside a Python sink that does nothing.

Spark starts several Python processes for a query: one each to look the format up, to make it, to plan, to write and to commit.
Each of them imports the sink. Every run starts Spark again, the contenders take turns, and the medians are printed. On a busy
machine the wall time says little: compare the CPU time of Spark's Python processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
import pyarrow as pa

TRIVIAL: Final = "trivial"
OURS: Final = "kafka_sink"
TOPIC: Final = "events"
ROWS: Final = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_batch", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each contender (default: %(default)s)")
    parser.add_argument("--one", metavar="FORMAT", help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        print(json.dumps(_measured(asked.one, asked.servers)), flush=True)
        return 0
    from spark_kafka_sink.broker import EmbeddedBroker

    found: dict[str, list[dict[str, float]]] = {TRIVIAL: [], OURS: []}
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, 2)
        for _ in range(asked.runs):
            for contender, runs in found.items():
                runs.append(_run(contender, broker.bootstrap_servers))
                print(f"{contender}: {_line(runs[-1])}", file=sys.stderr, flush=True)
    medians = {contender: _medians(runs) for contender, runs in found.items()}
    print(f"medians of {asked.runs} runs, in seconds")
    for contender, figures in medians.items():
        print(f"{contender}: {_line(figures)}")
    print(f"difference: {_line({name: medians[OURS].get(name, 0.0) - value for name, value in medians[TRIVIAL].items()})}")
    return 0


def _run(contender: str, servers: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.first_batch", "--one", contender, "--servers", servers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{contender} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run.get(name, 0.0) for run in runs) for name in runs[0]}


def _line(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in figures.items())


def _measured(contender: str, servers: str) -> dict[str, float]:
    """Runs a query of two micro-batches. Returns their wall times, and the CPU time of Spark's Python processes by role."""
    from pyspark.sql import SparkSession

    import spark_kafka_sink as sks

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        if contender == OURS:
            sks.register(spark)
        else:
            spark.dataSource.register(trivial_source())
        rows = str(Path(folder) / "rows")
        spark.range(0, 2 * ROWS, 1, 2).selectExpr("string(id) AS key", "string(id) AS value").write.parquet(rows)
        source = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1).parquet(rows)
        with CpuTimes() as cpu:
            query = (
                source.writeStream.format(contender)
                .option("kafka.bootstrap.servers", servers)
                .option("topic", TOPIC)
                .option("checkpointLocation", str(Path(folder) / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        batches = [batch.durationMs["triggerExecution"] / 1000 for batch in query.recentProgress]
        spark.stop()
    return {"first batch": batches[0], "second batch": batches[1], "CPU": sum(cpu.by_role().values()), **cpu.by_role()}


def trivial_source() -> type:
    """Returns a data source that reads its Arrow batches and writes nothing. Spark pickles a local class by value."""
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

    class Writer(DataSourceArrowWriter, DataSourceStreamWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

        def commit(self, messages: Any, batchId: int) -> None:  # type: ignore[override]
            pass

        def abort(self, messages: Any, batchId: int) -> None:  # type: ignore[override]
            pass

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return TRIVIAL

        def streamWriter(self, schema: Any, overwrite: bool) -> Writer:
            return Writer()

    return Source


class CpuTimes:
    """Samples the CPU time of the Python processes below this one, until it is left."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, float], tuple[str, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> CpuTimes:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def by_role(self) -> dict[str, float]:
        """Returns seconds by the name of the module that a process runs, which Spark gives in its command line."""
        found: dict[str, float] = {}
        for role, seconds in self._seconds.values():
            found[role] = found.get(role, 0.0) + seconds
        return dict(sorted(found.items()))

    def _sample(self) -> None:
        own = psutil.Process()
        while not self._stop.wait(0.02):
            for process in own.children(recursive=True):
                try:
                    command, times = process.cmdline(), process.cpu_times()
                    if "-m" in command and "java" not in command[0]:
                        key = process.pid, process.create_time()
                        self._seconds[key] = command[-1].rpartition(".")[2], times.user + times.system
                except psutil.Error:
                    continue


if __name__ == "__main__":
    sys.exit(main())
