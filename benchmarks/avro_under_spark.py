"""`python -m benchmarks.avro_under_spark`: Avro from a DataFrame to Kafka, beside Spark's `to_avro` and its own sink.

All contenders take turns in one Spark application, read the same Parquet files and write a record of all columns. This sink asks
a real registry and writes the schema's id before each value. `to_avro` knows no registry, so it writes the record alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.avro_records import RECORDS, rows_of
from benchmarks.cells import FIRST_WARM_UPS, WARM_UPS, Plan, take_turns
from benchmarks.contenders import Target, kafka_options, our_settings, prepare
from benchmarks.environment import Topics, broker, spark_session
from benchmarks.figures import ratio, rows_per_s, spread
from benchmarks.measure import timed
from benchmarks.pictures import machine
from benchmarks.results import JVM, JVM_TUNED, SINK, Run, Runs
from docs.markdown import table
from tests.registry.apicurio import Apicurio

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES: Final = 8
KEY: Final = "key"
LABELS: Final[Mapping[str, str]] = {
    SINK: "this sink, `value.format=avro`",
    JVM: '`to_avro` and `format("kafka")`',
    JVM_TUNED: "the same, with this sink's `batch.size` and `linger.ms`",
}

Write = Callable[["DataFrame", Target, str], None]


@dataclass(frozen=True, slots=True)
class AvroCell:
    """A record of RECORDS, and who writes it."""

    name: str
    contenders: tuple[str, ...] = (JVM, JVM_TUNED, SINK)
    codec: str = "lz4"
    partitions: int = 8


CELLS: Final = tuple(AvroCell(name) for name in RECORDS)


def sink(frame: DataFrame, target: Target, registry: str) -> None:
    """Writes with this project's sink and a registry."""
    schemas = {"value.format": "avro", "schema.registry.url": registry}
    frame.write.format("kafka_sink").options(**kafka_options(target), **schemas).mode("append").save()


def jvm(frame: DataFrame, target: Target, _registry: str) -> None:
    """Writes with Spark's `to_avro` and its own sink."""
    _encoded(frame).write.format("kafka").options(**kafka_options(target)).save()


def jvm_tuned(frame: DataFrame, target: Target, _registry: str) -> None:
    """Writes in the same way, with this project's settings of batches."""
    _encoded(frame).write.format("kafka").options(**kafka_options(target, our_settings(target.partitions))).save()


def _encoded(frame: DataFrame) -> DataFrame:
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import struct

    return frame.select(KEY, to_avro(struct(*(name for name in frame.columns if name != KEY))).alias("value"))


CONTENDERS: Final[Mapping[str, Write]] = {SINK: sink, JVM: jvm, JVM_TUNED: jvm_tuned}


def write_files(name: str, rows: int, folder: Path) -> list[str]:
    """Writes rows of a record with a key of 10 digits to Parquet files, and returns their paths."""
    struct = rows_of(name, rows // FILES)
    columns = dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))
    paths = []
    for number in range(FILES):
        keys = np.random.default_rng(number).integers(10**9, 10**10, len(struct))
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({KEY: pa.array(keys).cast(pa.string()), **columns}), path)
        paths.append(str(path))
    return paths


def measured(cells: Sequence[AvroCell], plan: Plan, rows: int) -> Iterator[tuple[AvroCell, Runs]]:
    """Yields the runs of each cell."""
    with _registry() as registry, broker() as topics, spark_session() as spark, tempfile.TemporaryDirectory() as folder:
        prepare(spark)
        for number, cell in enumerate(cells):
            own = Path(folder) / cell.name
            own.mkdir()
            frame = spark.read.parquet(*write_files(cell.name, rows, own))
            run = partial(_run, cell=cell, frame=frame, rows=rows // FILES * FILES, topics=topics, registry=registry)
            yield cell, take_turns(cell, plan, WARM_UPS if number else FIRST_WARM_UPS, run)


@contextmanager
def _registry() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, Apicurio(Path(folder)) as registry:
        registry.wait()
        yield registry.url


def _run(name: str, cell: AvroCell, frame: DataFrame, rows: int, topics: Topics, registry: str) -> Run:
    with topics.fresh(cell.partitions, rows * 200) as topic:
        target = Target(topics.kafka.bootstrap_servers, topic, cell.codec, cell.partitions)
        one = timed(rows, lambda: CONTENDERS[name](frame, target, registry))
        topics.check_count(topic, rows)
    return one


def cpu_per_row(runs: Sequence[Run]) -> list[float]:
    """Returns the microseconds of CPU per row: of the JVM, of the Python workers and of the driver's Python processes."""
    return [(run.jvm_s + run.cpu_s + run.planners_s) / run.rows * 1e6 for run in runs]


def markdown(cell: AvroCell, runs: Runs) -> str:
    """Returns a cell's table. The ratios are those of a contender to this sink; above 1, this sink is cheaper or faster."""
    lines = []
    ours = runs[SINK]
    for name, them in runs.items():
        if not them or not ours:
            lines.append([LABELS[name], "failed", "", "", ""])
            continue
        speed, cost = spread(rows_per_s(them)), spread(cpu_per_row(them))
        cheaper, faster = ratio(cpu_per_row(them), cpu_per_row(ours)), ratio(rows_per_s(ours), rows_per_s(them))
        lines.append(
            [
                LABELS[name],
                f"{cost.middle:.2f} ({cost.low:.2f} to {cost.high:.2f})",
                f"{cheaper.middle:.2f}",
                f"{speed.middle:,.0f}",
                f"{faster.middle:.2f}",
            ]
        )
    head = [cell.name, "CPU, µs a row", "of this sink's", "rows/s", "this sink's, of them"]
    return table(head, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.avro_under_spark", description="Avro from a DataFrame to Kafka.")
    parser.add_argument("--only", nargs="+", default=[], choices=[cell.name for cell in CELLS], help="measure these records")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, of which the medians are printed (%(default)s)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a run (%(default)s)")
    asked = parser.parse_args(arguments)
    plan = Plan(quick=False, repeats=asked.repeats, least_repeats=asked.repeats, cell_seconds=600)
    cells = [cell for cell in CELLS if not asked.only or cell.name in asked.only]
    complete = True
    print(f"Measured on {machine(('pyspark', 'pyarrow', 'numpy'))}")
    for cell, runs in measured(cells, plan, asked.rows):
        print(f"\n{markdown(cell, runs)}", flush=True)
        complete = complete and all(runs.values())
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
