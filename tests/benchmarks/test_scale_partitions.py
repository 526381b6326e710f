"""Tables and one tiny point of the measurement of many partitions. The measurement itself takes minutes: `make scale`."""

from __future__ import annotations

from benchmarks.scale import partitions
from benchmarks.scale.partitions import KEYS
from spark_kafka_sink.broker import EmbeddedBroker


def test_a_point_is_measured_with_rows_and_metadata() -> None:
    with EmbeddedBroker() as broker:
        topic = broker.create_topic("events", 5)
        (found,) = partitions.measured(broker.bootstrap_servers, topic, 5, KEYS, rows=1_000, repeats=1)
    assert (found.rows_have, found.partitions) == (KEYS, 5)
    assert found.cpu_us_per_row > 0 < found.batch_bytes
    assert found.metadata_bytes > 5 * 18
    assert found.requests_per_mb > 0 < found.refresh_ms
