"""OpenTelemetry's MetricsData v1 in Protobuf, as far as KIP-714 needs it: gauges and monotonic sums of doubles.

Written by hand, because the core has no Protobuf library. Names and numbers of fields are those of
opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from spark_kafka_sink.records.varints import unsigned_varint

_FIXED64: Final = 1
_LENGTH: Final = 2

_DELTA: Final = bytes((2 << 3, 1))  # Sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
_CUMULATIVE: Final = bytes((2 << 3, 2))
_MONOTONIC: Final = bytes((3 << 3, 1))  # Sum.is_monotonic = true

# NumberDataPoint's start_time_unix_nano, time_unix_nano and as_double; a gauge has no start.
_SUM_POINT: Final = struct.Struct("<BQBQBd")
_GAUGE_POINT: Final = struct.Struct("<BQBd")
_START, _TIME, _AS_DOUBLE = (number << 3 | _FIXED64 for number in (2, 3, 4))


def _field(number: int, data: bytes) -> bytes:
    """Returns a field that holds text or a message."""
    return bytes((number << 3 | _LENGTH,)) + unsigned_varint(len(data)) + data


def _key_value(key: str, value: str) -> bytes:
    string_value = _field(1, value.encode())  # of AnyValue
    return _field(1, key.encode()) + _field(2, string_value)


def point_attributes(attributes: Mapping[str, str]) -> bytes:
    """Returns NumberDataPoint.attributes. Many points share them, so they are encoded once."""
    return b"".join(_field(7, _key_value(key, value)) for key, value in attributes.items())


def gauge_point(attributes: bytes, time_ns: int, value: float) -> bytes:
    """Returns a point of a gauge. Times are in ns since 1970."""
    return _GAUGE_POINT.pack(_TIME, time_ns, _AS_DOUBLE, value) + attributes


def sum_point(attributes: bytes, start_ns: int, time_ns: int, value: float) -> bytes:
    """Returns a point of a sum, which counts from `start_ns` on."""
    return _SUM_POINT.pack(_START, start_ns, _TIME, time_ns, _AS_DOUBLE, value) + attributes


def gauge(name: str, points: Iterable[bytes]) -> bytes:
    """Returns a Metric with a Gauge."""
    return _field(1, name.encode()) + _field(5, b"".join(_field(1, point) for point in points))


def monotonic_sum(name: str, points: Iterable[bytes], *, delta: bool) -> bytes:
    """Returns a Metric with a Sum that never decreases."""
    kind = (_DELTA if delta else _CUMULATIVE) + _MONOTONIC
    return _field(1, name.encode()) + _field(7, b"".join(_field(1, point) for point in points) + kind)


def metrics_data(resource: Mapping[str, str], metrics: Iterable[bytes]) -> bytes:
    """Returns MetricsData with the metrics of one resource, or nothing if there are no metrics."""
    scope_metrics = b"".join(_field(2, metric) for metric in metrics)
    if not scope_metrics:
        return b""
    attributes = b"".join(_field(1, _key_value(key, value)) for key, value in resource.items())
    return _field(1, _field(1, attributes) + _field(2, scope_metrics))
