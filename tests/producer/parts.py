"""Parts of a producer without a broker: an accumulator with its pool and an appender, and a cluster with one leader."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.producer.accumulator.appender import Append, Appender
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import Batch, RecordAccumulator
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.bad_rows import OnBadRows
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.records.columns import RecordColumns
from tests.producer.clusters import cluster_of
from tests.producer.told import NeverEnding


@dataclass
class Wakeups:
    """Of the sender's thread, which is not there. on_wakeup: what it would do."""

    count: int = 0
    on_wakeup: Callable[[], None] = lambda: None

    def wakeup(self) -> None:
        self.count += 1
        self.on_wakeup()


@dataclass
class Parts:
    """What stands between a task and the sender's thread, without that thread."""

    config: ProducerConfig
    pool: BufferPool
    accumulator: RecordAccumulator
    appender: Appender
    cluster: Cluster
    metrics: SenderMetrics
    wakeups: Wakeups
    losses: list[int] = field(default_factory=list)  # by discards: how many records were not finished at that moment
    passed_ms: int = 0
    lifecycle: Lifecycle = field(default_factory=lambda: NeverEnding(lambda: None))

    def tally(self) -> Tally:
        return Tally()

    def scope(self) -> SendScope:
        """Appends to partition 0 only."""
        return SendScope(self.lifecycle, _ToPartition0(self), self.accumulator, Identity(), self.metrics)

    def discard(self, tally: Tally) -> None:
        """What SendScope.discard does."""
        tally.discarded = True
        error = UsageError("discarded")
        self.accumulator.discard(tally, error, lambda: self.losses.append(self.accumulator.incomplete_records()))

    def append(self, tally: Tally, values: list[bytes | None], partitions: list[int], topic: str = "t", count: int = 300) -> None:
        columns = RecordColumns(len(values), value=pa.array(values, pa.binary()))
        self.append_columns(tally, columns, partitions, topic, count)

    def append_columns(
        self, tally: Tally, columns: RecordColumns, partitions: list[int], topic: str = "t", count: int = 300
    ) -> None:
        append = Append(tally, topic, columns)
        sizes = self.appender.sizes(append)
        self.appender.append(append, sizes, np.array(partitions, dtype=np.int32), count)

    def ready_nodes(self) -> list[int]:
        return self.accumulator.ready(self.cluster, self.clock()).nodes

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


class _ToPartition0(ColumnAppender):
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def append(self, rows: Append, on_bad_rows: OnBadRows | None = None) -> None:
        self._parts.append_columns(rows.tally, rows.columns, [0] * rows.columns.num_records, rows.topic)


def make_parts(chunk_size: int = 256, **settings: object) -> Parts:
    """Settings are Kafka's option names with underscores for dots."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    config = producer_config({"bootstrap.servers": "localhost:9092", **options})
    metrics = SenderMetrics(config)
    pool = BufferPool(config.buffer_memory, chunk_size, on_wait=metrics.waited_for_memory)
    accumulator = RecordAccumulator(config, pool)
    wakeups = Wakeups()
    appender = Appender(config, accumulator, Lifecycle(wakeups.wakeup))
    return Parts(config, pool, accumulator, appender, cluster_of({"t": 300, "u": 300}), metrics, wakeups)
