"""Contenders of the cost benchmark: this sink, its peers, and the lower limits. Each writes a DataFrame to a topic.

The contenders of `benchmarks.contenders` are used as they are. A peer with a call per row reads keys and values as binary, which
saves it from encoding them in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from benchmarks import contenders
from benchmarks.contenders import POLL_EVERY, Contender, Target, confluent_settings, flush_all, kafka_options, produce_all
from benchmarks.results import CEILING, CONFLUENT, JVM, JVM_TUNED, KAFKA_PYTHON, PARQUET, SINK, SINK_EXACTLY_ONCE
from spark_kafka_sink.options.producer_options import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

FLUSH_S = 120.0


def sink_exactly_once(frame: DataFrame, target: Target) -> None:
    """Writes with this project's sink in Kafka transactions, which its commit makes visible together."""
    options = kafka_options(target) | {"delivery.guarantee": "exactly-once", "transactional.id.prefix": target.topic}
    frame.write.format("kafka_sink").options(**options).mode("append").save()


def parquet(frame: DataFrame, _target: Target) -> None:
    """Reads the Parquet files in the JVM and drops the rows: what every other contender does first."""
    frame.write.format("noop").mode("overwrite").save()


def confluent(frame: DataFrame, target: Target) -> None:
    """Writes with confluent-kafka in foreachPartition."""
    write = _confluent_with_headers if "headers" in frame.columns else _confluent
    _binary(frame).foreachPartition(PerRow(write, target))


def kafka_python(frame: DataFrame, target: Target) -> None:
    """Writes with kafka-python in foreachPartition."""
    _binary(frame).foreachPartition(PerRow(_kafka_python, target))


def _binary(frame: DataFrame) -> DataFrame:
    headers = ["headers"] if "headers" in frame.columns else []
    return frame.selectExpr("cast(key as binary) as key", "cast(value as binary) as value", *headers)


@dataclass(frozen=True, slots=True)
class PerRow:
    """The function that each task runs. write: takes the target and the rows, each of key, value and headers if there are any."""

    write: Callable[[Target, Iterator[Row]], None]
    target: Target

    def __call__(self, rows: Iterator[Row]) -> None:
        self.write(self.target, rows)


def _confluent(target: Target, rows: Iterator[Row]) -> None:
    produce_all(Producer(confluent_settings(target)), target.topic, rows)


def _confluent_with_headers(target: Target, rows: Iterator[Row]) -> None:
    # A separate loop, because a test for headers in each row would slow the usual loop down.
    producer = Producer(confluent_settings(target))
    produce, poll, topic = producer.produce, producer.poll, target.topic
    for number, (key, value, headers) in enumerate(rows):
        while True:
            try:
                produce(topic, value, key, headers=headers)
                break
            except BufferError:
                poll(0.005)
        if number % POLL_EVERY == 0:
            poll(0)
    flush_all(producer)


def _kafka_python(target: Target, rows: Iterator[Row]) -> None:
    from kafka import KafkaProducer  # its imports log warnings

    producer = KafkaProducer(
        bootstrap_servers=target.bootstrap_servers,
        compression_type=None if target.codec == "none" else target.codec,
        linger_ms=OPTIONS["linger.ms"].default,  # its own default, 0, sends a request for nearly every row
    )
    try:
        send = producer.send
        for key, value, *headers in rows:
            send(target.topic, value, key, *headers)
        producer.flush(FLUSH_S)
    finally:
        producer.close(FLUSH_S)


CONTENDERS: Mapping[str, Contender] = {
    JVM: contenders.jvm_sink,
    JVM_TUNED: contenders.jvm_sink_tuned,
    SINK: contenders.sink,
    SINK_EXACTLY_ONCE: sink_exactly_once,
    CONFLUENT: confluent,
    KAFKA_PYTHON: kafka_python,
    CEILING: contenders.ceiling,
    PARQUET: parquet,
}
# Contenders that send nothing.
LIMITS = frozenset({CEILING, PARQUET})
