"""All of a producer's metrics at one moment, as plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import TypedDict

from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.metrics.sender_metrics import SenderMetrics

ProducerMetrics = TypedDict(
    "ProducerMetrics",
    {
        "producer-metrics": dict[str, float],
        "producer-topic-metrics": dict[str, dict[str, float]],
        "producer-node-metrics": dict[str, dict[str, float]],
    },
)
"""By Java's groups: of the producer; of each topic by its name; of each broker by `node-` and its id."""


def snapshot(metrics: SenderMetrics, client: NetworkClient, metadata: Metadata, pool: BufferPool) -> ProducerMetrics:
    """From any thread."""
    producer, topics, nodes = metrics.snapshot(_gauges(client, metadata, pool))
    return {"producer-metrics": producer, "producer-topic-metrics": topics, "producer-node-metrics": nodes}


def _gauges(client: NetworkClient, metadata: Metadata, pool: BufferPool) -> Mapping[str, float]:
    updated_ms = metadata.last_full_update_ms
    return {
        "requests-in-flight": float(client.in_flight_count()),
        "connection-count": float(client.connection_count()),
        "metadata-age": nan if updated_ms is None else (monotonic_ms() - updated_ms) / 1000,
        "buffer-total-bytes": float(pool.total),
        "buffer-available-bytes": float(pool.available),
        "waiting-threads": float(pool.queued()),
    }
