"""Tables and one tiny point of the measurement of many partitions. The measurement itself takes minutes: `make scale`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pictures import keep
from benchmarks.scale import partitions
from benchmarks.scale.partitions import KEYS, NO_KEYS, Sample
from spark_kafka_sink.broker import EmbeddedBroker


def sample(rows_have: str, count: int, cpu: float, memory: float = 50.0) -> Sample:
    return Sample(rows_have, count, cpu, 1_000, 0.5, memory, 12.0, 600 + 42 * count, 0.5)


def test_the_tables_have_medians_and_the_peak_of_memory(tmp_path: Path) -> None:
    samples = [sample(KEYS, 1_000, cpu, memory) for cpu, memory in ((0.9, 80), (0.7, 90), (0.8, 70))]
    keep(tmp_path / "scale_partitions.csv", "2026-01-01; a machine", [*samples, sample(NO_KEYS, 1_000, 0.3)])
    text = partitions.tables(tmp_path)
    assert "| random keys | 1,000 | 0.80 | 1,000 | 0.50 | 90 |" in text
    assert "| no keys | 1,000 | 0.30 | 1,000 | 0.50 | 50 |" in text
    assert "| 1,000 | 42,600 | 12 | 0.5 |" in text
    assert text.endswith("Measured on 2026-01-01; a machine.")


def test_a_picture_is_drawn_from_the_samples(tmp_path: Path) -> None:
    keep(tmp_path / "scale_partitions.csv", "a day", [sample(KEYS, 1, 0.2), sample(KEYS, 10, 0.3)])
    partitions.draw(tmp_path)
    assert "random keys" in (tmp_path / "scale_partitions.svg").read_text(encoding="utf-8")


def test_a_point_is_measured_with_rows_and_metadata() -> None:
    with EmbeddedBroker() as broker:
        topic = broker.create_topic("events", 5)
        (found,) = partitions.measured(broker.bootstrap_servers, topic, 5, KEYS, rows=1_000, repeats=1)
    assert (found.rows_have, found.partitions) == (KEYS, 5)
    assert found.cpu_us_per_row > 0 < found.batch_bytes
    assert found.metadata_bytes > 5 * 18
    assert found.requests_per_mb > 0 < found.refresh_ms
