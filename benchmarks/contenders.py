"""Contenders under Spark: functions that write a DataFrame of key and value to a topic and return when all rows are acked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import spark_kafka_sink as sks
from benchmarks.results import CEILING, EMBEDDED, JVM, SINK
from spark_kafka_sink.options.producer_options import OPTIONS
from spark_kafka_sink.options.sink_options import TASK_LINGER_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

POLL_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Target:
    """The topic to write to, and how."""

    bootstrap_servers: str
    topic: str
    codec: str
    partitions: int


Contender = Callable[["DataFrame", Target], None]


def prepare(spark: SparkSession) -> None:
    """Registers the formats in a new session."""
    spark.dataSource.register(Discard)
    sks.register(spark)


def sink(frame: DataFrame, target: Target) -> None:
    """Writes with this project's sink, at its defaults."""
    frame.write.format("kafka_sink").options(**kafka_options(target)).mode("append").save()


def jvm_sink(frame: DataFrame, target: Target) -> None:
    """Writes with Spark's own sink, at its defaults."""
    frame.write.format("kafka").options(**kafka_options(target)).save()


def jvm_sink_tuned(frame: DataFrame, target: Target) -> None:
    """Writes with Spark's own sink and this project's batch.size, linger.ms and compression level."""
    frame.write.format("kafka").options(**kafka_options(target, our_settings(target.partitions))).save()


def our_settings(partitions: int) -> dict[str, object]:
    """Returns our defaults that differ from Java's, for a Java producer, with the memory that it needs for them.

    lz4's level is left out. Java's 9 selects lz4's fast compressor, like our levels up to 2; any other number selects the slow
    one (Lz4BlockOutputStream's constructor). Java allocates a whole batch.size per open batch. With 32 MB for 1,000 partitions
    batches had few rows, and some partitions were not sent within delivery.timeout.ms.
    """
    ours: dict[str, object] = {name: OPTIONS[name].default for name in ("batch.size", "compression.zstd.level")}
    ours["linger.ms"] = TASK_LINGER_MS
    return ours | {"buffer.memory": max(32 * 2**20, 2 * partitions * int(str(ours["batch.size"])))}


def kafka_options(target: Target, settings: Mapping[str, object] = MappingProxyType({})) -> dict[str, str]:
    """Returns the options that both sinks have. settings: Kafka's, over those of the target."""
    kafka = {"bootstrap.servers": target.bootstrap_servers, "compression.type": target.codec, **settings}
    return {"topic": target.topic} | {f"kafka.{name}": str(value) for name, value in kafka.items()}


def produce_all(producer: Producer, topic: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Sends (key, value) pairs with confluent-kafka, and returns when all are acked."""
    produce, poll = producer.produce, producer.poll
    for number, (key, value) in enumerate(rows):
        while True:
            try:
                produce(topic, value, key)
                break
            except BufferError:  # its queue of 100,000 records is full
                poll(0.005)
        if number % POLL_EVERY == 0:
            poll(0)
    flush_all(producer)


def flush_all(producer: Producer) -> None:
    """Returns when all records of a confluent-kafka producer are acked."""
    if left := producer.flush(120):
        raise TimeoutError(f"confluent-kafka: {left} records not acked within 120 s")


def confluent_settings(target: Target) -> dict[str, str | int | float | bool]:
    """Returns librdkafka's defaults with Java's partitioning of keys, which every other contender uses."""
    return {
        "bootstrap.servers": target.bootstrap_servers,
        "compression.type": target.codec,
        "partitioner": "murmur2_random",
    }


def ceiling(frame: DataFrame, _target: Target) -> None:
    """Passes Arrow batches to Python and drops them: the upper limit for any Python sink."""
    frame.write.format("discard").mode("append").save()


class Discard(DataSource):
    """Data source of format("discard"), which drops its Arrow batches."""

    @classmethod
    def name(cls) -> str:
        return "discard"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DiscardWriter()


class DiscardWriter(DataSourceArrowWriter):
    """Writer of format("discard")."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _batch in iterator:
            pass
        return WriterCommitMessage()


CONTENDERS: Mapping[str, Contender] = {
    SINK: sink,
    JVM: jvm_sink,
    CEILING: ceiling,
    EMBEDDED: sink,
}
