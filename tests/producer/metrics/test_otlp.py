"""Metrics that are encoded here are what Google's Protobuf library writes of the same values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.producer.metrics.metrics_collector import (
    gauge,
    gauge_point,
    metrics_data,
    monotonic_sum,
    point_attributes,
    sum_point,
)
from tests.producer.metrics.otlp_witness import Point, metrics_data_class, read

attributes = st.dictionaries(st.text(), st.text(), max_size=3)
times = st.integers(0, 2**64 - 1)


@given(attributes, attributes, st.text(), st.floats(allow_nan=False), times, times, st.booleans())
def test_the_library_reads_what_was_written(
    resource: dict[str, str], of_point: dict[str, str], name: str, value: float, start_ns: int, time_ns: int, delta: bool
) -> None:
    encoded = point_attributes(of_point)
    data = metrics_data(
        resource,
        [
            gauge(name, [gauge_point(encoded, time_ns, value)] * 2),
            monotonic_sum(name, [sum_point(encoded, start_ns, time_ns, value)], delta=delta),
        ],
    )
    parsed: Any = metrics_data_class().FromString(data)
    ((first, second),) = [scope.metrics for scope in parsed.resource_metrics[0].scope_metrics]
    assert {each.key: each.value.string_value for each in parsed.resource_metrics[0].resource.attributes} == resource
    assert (first.name, second.name) == (name, name)
    assert [point.as_double for point in first.gauge.data_points] == [value, value]
    (counted,) = second.sum.data_points
    assert (counted.start_time_unix_nano, counted.time_unix_nano, counted.as_double) == (start_ns, time_ns, value)
    assert {each.key: each.value.string_value for each in counted.attributes} == of_point
    assert second.sum.is_monotonic
    assert second.sum.aggregation_temporality == (1 if delta else 2)


def test_not_a_number_stays_one() -> None:
    (point,) = read(metrics_data({}, [gauge("g", [gauge_point(b"", 1, math.nan)])])).points
    assert math.isnan(point.value)


@pytest.mark.parametrize("length", [1, 127, 128, 20_000])
def test_lengths_of_several_bytes_are_read(length: int) -> None:
    name = "n" * length
    assert read(metrics_data({}, [gauge(name, [gauge_point(b"", 2, 1.5)])])).points == [Point(name, {}, 1.5, "", 0, 2)]


def test_no_metrics_are_no_bytes() -> None:
    assert metrics_data({"transactional_id": "t"}, []) == b""
