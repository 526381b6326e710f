"""OpenTelemetry's own SDK reads what is exported."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
    Sum,
)
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes

from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.exporters.metric_families import FAMILIES, Family
from spark_kafka_sink.exporters.opentelemetry import ATTRIBUTES, export_opentelemetry, instrument_name, instrument_unit
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from tests.exporters.reports import batch
from tests.spark.counting import counting

Points = dict[tuple[str, tuple[tuple[str, object], ...]], float]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    made = MeterProvider([reader])
    yield made
    made.shutdown()


def read(reader: InMemoryMetricReader) -> dict[str, Metric]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {metric.name: metric for of in data.resource_metrics for scope in of.scope_metrics for metric in scope.metrics}


def points(reader: InMemoryMetricReader) -> Points:
    """Returns the values of counters and gauges, without the attribute that all have."""
    found: Points = {}
    for name, metric in read(reader).items():
        for point in metric.data.data_points:
            attributes = dict(point.attributes or {})
            assert attributes.pop("messaging.system") == "kafka"
            if isinstance(point, NumberDataPoint):
                found[name, tuple(sorted(attributes.items()))] = point.value
    return found


def test_a_collection_has_what_was_committed(
    metrics: DeliveryMetrics, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    export_opentelemetry(metrics, provider)
    metrics.batch_committed(batch())
    of_partition = (("messaging.destination.name", "t"), ("messaging.destination.partition.id", "1"))
    expected: Points = {
        ("kafka_sink.records", of_partition): 10,
        ("kafka_sink.uncompressed", of_partition): 200,
        ("kafka_sink.compressed", ()): 50,
        ("kafka_sink.retries", ()): 1,
        ("kafka_sink.errors", (("error.type", "NOT_LEADER_OR_FOLLOWER"),)): 4,
        ("kafka_sink.bad_rows", (("kafka_sink.bad_row.reason", "header"),)): 2,
        ("kafka_sink.dead_letters", ()): 2,
        ("kafka_sink.throttled", ()): 1.5,
        ("kafka_sink.transactions", (("kafka_sink.transaction.outcome", "committed"),)): 6,
        ("kafka_sink.batches", (("kafka_sink.query.id", "q"), ("kafka_sink.query.name", "q"))): 1,
        ("kafka_sink.last_batch_timestamp", (("kafka_sink.query.id", "q"), ("kafka_sink.query.name", "q"))): 1_700_000_002.5,
    }
    found = points(reader)
    assert {key: found.get(key) for key in expected} == expected


def test_counts_only_grow_and_are_whole_numbers(
    metrics: DeliveryMetrics, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    export_opentelemetry(metrics, provider)
    metrics.batch_committed(batch())
    metrics.batch_committed(batch())
    retries = read(reader)["kafka_sink.retries"]
    assert isinstance(retries.data, Sum)
    assert retries.data.is_monotonic
    (point,) = retries.data.data_points
    assert isinstance(point.value, int)
    assert point.value == 2


def test_latencies_are_quantiles_of_the_last_micro_batch(
    metrics: DeliveryMetrics, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    export_opentelemetry(metrics, provider)
    metrics.batch_committed(batch())
    found = {key[1]: value for key, value in points(reader).items() if key[0] == "kafka_sink.last_batch_ack_latency"}
    query = ("kafka_sink.query.id", "q"), ("kafka_sink.query.name", "q")
    assert found == {(("kafka_sink.quantile", quantile), *query): 0.008 for quantile in ("0.5", "0.95", "0.99")}
    assert read(reader)["kafka_sink.last_batch_ack_latency"].unit == "s"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_units_are_ucum_and_names_have_no_unit(family: Family) -> None:
    assert instrument_name(family).startswith("kafka_sink.")
    assert not instrument_name(family).endswith(("_total", "_seconds", "_bytes"))
    unit = instrument_unit(family)
    assert unit in ("s", "By") or (unit[0] == "{" and unit[-1] == "}" and " " not in unit and not unit.endswith("s}"))


def test_attributes_are_those_of_the_semantic_conventions() -> None:
    assert ATTRIBUTES["topic"] == messaging_attributes.MESSAGING_DESTINATION_NAME
    assert ATTRIBUTES["partition"] == messaging_attributes.MESSAGING_DESTINATION_PARTITION_ID
    assert ATTRIBUTES["error"] == error_attributes.ERROR_TYPE
    assert {label for family in FAMILIES for label in family.labels} <= set(ATTRIBUTES)


def test_a_collection_reads_the_driver_once_and_the_next_one_again(
    metrics: DeliveryMetrics, provider: MeterProvider, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[None] = []

    def ages() -> dict[str, tuple[float, float]]:
        reads.append(None)
        return {}

    monkeypatch.setattr(metrics, "transaction_ages", ages)
    export_opentelemetry(metrics, provider)
    for number in (1, 2, 3):
        metrics.batch_committed(batch())
        assert points(reader)["kafka_sink.retries", ()] == number
        assert len(reads) == number


def test_a_second_call_replaces_the_metrics_of_an_ended_session(
    metrics: DeliveryMetrics, provider: MeterProvider, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    export_opentelemetry(metrics, provider)
    metrics.batch_committed(batch())
    later = counting()
    try:
        export_opentelemetry(later, provider)
        metrics.batch_committed(batch())
        assert points(reader)["kafka_sink.retries", ()] == 0
        later.batch_committed(batch())
        assert points(reader)["kafka_sink.retries", ()] == 1
    finally:
        later.close()
    assert not caplog.records


def test_on_spark_connect_nothing_is_exported_after_one_warning(
    uncounted: DeliveryMetrics, provider: MeterProvider, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    export_opentelemetry(uncounted, provider)
    assert read(reader) == {}
    (warning,) = caplog.records
    assert "nothing is exported to OpenTelemetry: Spark Connect has no accumulators" in warning.message


def test_without_the_library_the_error_names_the_extra(metrics: DeliveryMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    text = r"export_opentelemetry\(\) needs opentelemetry-api.*spark-kafka-sink\[opentelemetry\]"
    with pytest.raises(InstallationError, match=text):
        export_opentelemetry(metrics)
