"""Parts of a producer without a broker: an accumulator with its pool and an appender, and a cluster with one leader."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.config import ProducerConfig, producer_config
from spark_kafka_sink.producer.accumulator.appender import Appender
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import Batch, RecordAccumulator
from spark_kafka_sink.producer.accumulator.send_scope import SendScope
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.records.columns import RecordColumns
from tests.producer.clusters import cluster_of


@dataclass
class Parts:
    """What stands between a task and the sender's thread, without that thread."""

    config: ProducerConfig
    pool: BufferPool
    accumulator: RecordAccumulator
    appender: Appender
    cluster: Cluster
    metrics: SenderMetrics
    wakeups: list[None] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)  # by discards: how many records were not finished at that moment
    passed_ms: int = 0

    def owner(self) -> _Owner:
        return _Owner(self)

    def lost(self) -> None:
        self.losses.append(self.accumulator.incomplete_records())

    def scope(self) -> SendScope:
        return SendScope(_Owner(self), lambda scope: None)

    def append(
        self, scope: SendScope, values: list[bytes | None], partitions: list[int], topic: str = "t", count: int = 300
    ) -> None:
        columns = RecordColumns(len(values), value=pa.array(values, pa.binary()))
        self.append_columns(scope, columns, partitions, topic, count)

    def append_columns(
        self, scope: SendScope, columns: RecordColumns, partitions: list[int], topic: str = "t", count: int = 300
    ) -> None:
        sizes = self.appender.sizes(scope, topic, columns)
        self.appender.append(scope, topic, columns, sizes, np.array(partitions, dtype=np.int32), count)

    def ready_nodes(self, now_ms: int | None = None) -> list[int]:
        return self.accumulator.ready(self.cluster, self.clock() if now_ms is None else now_ms).nodes

    def drain(self, max_size: int = 2**31) -> list[Batch]:
        self.ready_nodes()
        return self.accumulator.drain(0, max_size)

    def drain_all(self) -> list[OpenBatch]:
        """Everything, as a flush and requests without bound take it, in order."""
        taken: list[OpenBatch] = []
        self.accumulator.flush(None)
        while batches := self.drain():
            taken += [batch for batch in batches if isinstance(batch, OpenBatch)]
        return taken

    def clock(self) -> int:
        """Now, and as many ms as the test has let pass."""
        return time.monotonic_ns() // 1_000_000 + self.passed_ms


@dataclass
class _Owner:
    parts: Parts

    def append(self, scope: SendScope, topic: str, columns: RecordColumns) -> None:
        self.parts.append_columns(scope, columns, [0] * columns.num_records, topic)

    def rows_per_append(self, topic: str) -> int:
        return 0

    def flush_scope(self, scope: SendScope) -> None:
        self.parts.accumulator.flush(scope)

    def flushed(self, waited_ns: int) -> None:
        self.parts.metrics.flushed(waited_ns)

    def discard_scope(self, scope: SendScope) -> None:
        for batch in self.parts.accumulator.discard(scope, self.parts.lost):
            batch.memory.give_back(self.parts.pool)

    def check_alive(self) -> None: ...


def make_parts(chunk_size: int = 256, **settings: object) -> Parts:
    """Settings are Kafka's option names with underscores for dots."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    config = producer_config({"bootstrap.servers": "localhost:9092", **options})
    metrics = SenderMetrics(config)
    pool = BufferPool(config.buffer_memory, chunk_size, on_wait=metrics.waited_for_memory)
    accumulator = RecordAccumulator(config)
    wakeups: list[None] = []
    appender = Appender(config, accumulator, pool, lambda: wakeups.append(None))
    return Parts(config, pool, accumulator, appender, cluster_of({"t": 300, "u": 300}), metrics, wakeups)
