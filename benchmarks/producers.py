"""Producers without Spark, by columns and record by record. Each runs in its own process, to measure its CPU alone."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import cycle, islice

import confluent_kafka
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import contenders
from benchmarks.contenders import Target
from benchmarks.data import KEY_BYTES
from benchmarks.results import CONFLUENT, KAFKA_PYTHON, SEND, SINK, Run
from spark_kafka_sink.options.producer_options import OPTIONS
from spark_kafka_sink.options.sink_options import TASK_LINGER_MS
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark.task.coalescer import ArrowBatchCoalescer
from spark_kafka_sink.spark.task.columns import TopicRecords

# The number of different records that are prepared. A run repeats them.
PREPARED = 500_000
VALUE_BYTES = 100
BATCH_ROWS = 10_000  # Spark's rows per Arrow batch


def _digits(width: int) -> NDArray[np.uint8]:
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    return digits[np.random.default_rng(width).integers(0, 16, size=(PREPARED, width), dtype=np.uint8)]


def _column(rows: NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def sink_loop(target: Target) -> Callable[[str, int], None]:
    """Writes rows through this project's producer from prepared Arrow batches, as a Spark task does."""
    settings = {"bootstrap.servers": target.bootstrap_servers, "compression.type": target.codec, "linger.ms": TASK_LINGER_MS}
    producer = Producer(settings)
    columns = RecordColumns(PREPARED, value=_column(_digits(VALUE_BYTES)), key=_column(_digits(KEY_BYTES)))
    batches = [columns.slice(start, BATCH_ROWS) for start in range(0, PREPARED, BATCH_ROWS)]

    def run(topic: str, rows: int) -> None:
        with producer.scope() as scope:
            records = (TopicRecords(topic, batches[number % len(batches)]) for number in range(rows // BATCH_ROWS))
            for coalesced in ArrowBatchCoalescer(scope.rows_per_append, TASK_LINGER_MS).coalesced(records):
                scope.append(topic, coalesced.columns())
            scope.flush()

    return run


def send_loop(target: Target) -> Callable[[str, int], None]:
    """Writes the same records one by one through this project's producer, from prepared bytes objects."""
    producer = Producer({"bootstrap.servers": target.bootstrap_servers, "compression.type": target.codec})
    prepared = _prepared()

    def run(topic: str, rows: int) -> None:
        send = producer.send
        for key, value in islice(cycle(prepared), rows):
            send(topic, value, key)
        producer.flush(120)

    return run


def kafka_python_loop(target: Target) -> Callable[[str, int], None]:
    """Writes the same records through kafka-python, with our linger.ms."""
    from kafka import KafkaProducer  # its imports log warnings

    linger_ms = OPTIONS["linger.ms"].default
    codec = None if target.codec == "none" else target.codec
    producer = KafkaProducer(bootstrap_servers=target.bootstrap_servers, compression_type=codec, linger_ms=linger_ms)
    prepared = _prepared()

    def run(topic: str, rows: int) -> None:
        for key, value in islice(cycle(prepared), rows):
            producer.send(topic, value, key)
        producer.flush(120)

    return run


def confluent_loop(target: Target) -> Callable[[str, int], None]:
    """Writes the same records through confluent-kafka, from prepared bytes objects."""
    producer = confluent_kafka.Producer(contenders.confluent_settings(target))
    prepared = _prepared()
    return lambda topic, rows: contenders.produce_all(producer, topic, islice(cycle(prepared), rows))


def _prepared() -> list[tuple[bytes, bytes]]:
    """Returns keys and values."""
    return list(zip(_column(_digits(KEY_BYTES)).to_pylist(), _column(_digits(VALUE_BYTES)).to_pylist(), strict=True))


LOOPS: Mapping[str, Callable[[Target], Callable[[str, int], None]]] = {
    SINK: sink_loop,
    CONFLUENT: confluent_loop,
    SEND: send_loop,
    KAFKA_PYTHON: kafka_python_loop,
}


@cache
def _loop(name: str, bootstrap_servers: str, codec: str) -> Callable[[str, int], None]:
    return LOOPS[name](Target(bootstrap_servers, "", codec, 0))


def _timed(name: str, target: Target, rows: int) -> Run:
    run = _loop(name, target.bootstrap_servers, target.codec)
    cpu, started = time.process_time(), time.perf_counter()
    run(target.topic, rows)
    return Run(rows, time.perf_counter() - started, time.process_time() - cpu)


class ProducerProcesses:
    """One warm process for each contender."""

    def __init__(self, pools: Mapping[str, ProcessPoolExecutor]) -> None:
        self._pools = pools

    def run(self, name: str, target: Target, rows: int) -> Run:
        """Runs a contender once. `rows` is rounded down to whole Arrow batches."""
        return self._pools[name].submit(_timed, name, target, rows // BATCH_ROWS * BATCH_ROWS).result()


@contextmanager
def processes() -> Iterator[ProducerProcesses]:
    """Starts the processes, and ends them with the `with`."""
    # spawn: a forked process would inherit locks of the threads of Spark's gateway and of librdkafka.
    pools = {name: ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) for name in LOOPS}
    try:
        yield ProducerProcesses(pools)
    finally:
        for pool in pools.values():
            pool.shutdown()
