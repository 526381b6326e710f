"""A producer's metrics as OpenTelemetry data, under the names of KIP-714.

MetricsData v1 is written by hand, because the core has no Protobuf library: only gauges and monotonic sums of doubles. Names and
numbers of fields are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from spark_kafka_sink.producer.metrics.metric_table import GAUGES, NODE, PRODUCER, TOPIC
from spark_kafka_sink.producer.metrics.sender_metrics import ProducerMetrics
from spark_kafka_sink.producer.metrics.telemetry_state import Subscription
from spark_kafka_sink.records.compression import Codec, compress
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
    return _field(1, name.encode()) + _field(5, b"".join(_field(1, point) for point in points))


def monotonic_sum(name: str, points: Iterable[bytes], *, delta: bool) -> bytes:
    kind = (_DELTA if delta else _CUMULATIVE) + _MONOTONIC
    return _field(1, name.encode()) + _field(7, b"".join(_field(1, point) for point in points) + kind)


def metrics_data(resource: Mapping[str, str], metrics: Iterable[bytes]) -> bytes:
    """Returns MetricsData with the metrics of one resource, or nothing if there are no metrics."""
    scope_metrics = b"".join(_field(2, metric) for metric in metrics)
    if not scope_metrics:
        return b""
    attributes = b"".join(_field(1, _key_value(key, value)) for key, value in resource.items())
    return _field(1, _field(1, attributes) + _field(2, scope_metrics))


Key = tuple[str, str]  # the name, and the topic or broker

_LEVELS: Final = {Codec.NONE: 0, Codec.GZIP: -1, Codec.SNAPPY: 0, Codec.LZ4: 0, Codec.ZSTD: 1}


class _Group(NamedTuple):
    """A group of metrics. attribute: what tells its points apart. names: full names by Java's."""

    attribute: str
    names: Mapping[str, str]


def _group(prefix: str, attribute: str, metrics: Iterable[str]) -> _Group:
    return _Group(attribute, {name: f"org.apache.kafka.{prefix}.{name.replace('-', '.')}" for name in metrics})


# TelemetryMetricNamingConvention. What Java lacks or this producer does not measure (OWN, CONSTANT_METRICS) is not pushed:
# the namespace is Kafka's, and a constant 0 of logins would be taken for a count.
_PRODUCER: Final = _group("producer", "", (metric.name for metric in (*PRODUCER, *GAUGES)))
_TOPIC: Final = _group("producer.topic", "topic", (metric.name for metric in TOPIC))
_NODE: Final = _group("producer.node", "node_id", (metric.name for metric in NODE))


class Payload(NamedTuple):
    """A payload to push. data: MetricsData, compressed with the subscription's codec; empty if no metric is wanted. counts: the
    totals that it brings the receiver up to, read at time_ns (ns since 1970). left_out: attributes of the groups that would have
    made it too large.
    """

    data: bytes
    counts: Mapping[Key, float]
    time_ns: int
    left_out: tuple[str, ...]


class MetricsCollector:
    """Java's KafkaMetricsCollector and its ledger of what was pushed. The sender's thread owns it.

    Java takes a delta as pushed when it is encoded, so that a rejected push loses it. Here the ledger follows `delivered`.
    """

    def __init__(self, resource: Mapping[str, str], begun_ns: int) -> None:
        """resource: attributes of the producer. begun_ns: when all totals were 0, in ns since 1970."""
        self._resource = resource
        self._begun_ns = begun_ns
        self._delivered: dict[Key, tuple[int, float]] = {}

    def payload(self, metrics: ProducerMetrics, subscription: Subscription, time_ns: int, *, without: int = 0) -> Payload:
        """Returns the metrics that are wanted. If they exceed the broker's limit, those of topics, then of brokers are left out.

        Java pushes them anyway, and the broker rejects them each time. `without`: how many of these groups are left out in any
        case. A broker that decompresses pushes may find one too large whose compressed size it accepts (ClientMetricsManager).
        """
        topics, nodes = metrics["producer-topic-metrics"], metrics["producer-node-metrics"]
        groups = [(_TOPIC, topics), (_NODE, nodes), (_PRODUCER, {"": metrics["producer-metrics"]})]
        for first in range(min(without, len(groups) - 1), len(groups)):
            counts: dict[Key, float] = {}
            encoded = [
                each for group, values in groups[first:] for each in self._of(group, values, subscription, time_ns, counts)
            ]
            data = metrics_data(self._resource, encoded)
            data = compress(subscription.codec, _LEVELS[subscription.codec], [data]) if data else data
            if len(data) <= subscription.max_bytes:
                break
        return Payload(data, counts, time_ns, tuple(group.attribute for group, _ in groups[:first]))

    def delivered(self, payload: Payload) -> None:
        """Records that a payload was accepted, or may have been."""
        for key, total in payload.counts.items():
            self._delivered[key] = payload.time_ns, total

    def reset(self) -> None:
        """Makes the next deltas begin at 0, because the temporality has changed."""
        self._delivered.clear()

    def _of(
        self,
        group: _Group,
        values: Mapping[str, Mapping[str, float]],
        subscription: Subscription,
        time_ns: int,
        counts: dict[Key, float],
    ) -> Iterator[bytes]:
        """Yields a Metric for each name, with a point for each topic or broker."""
        owners = [(owner, point_attributes({group.attribute: owner} if owner else {}), of) for owner, of in values.items()]
        for name, full_name in group.names.items():
            if not owners or not subscription.wants(full_name):
                continue
            if not name.endswith("-total"):
                yield gauge(full_name, [gauge_point(attributes, time_ns, of[name]) for _, attributes, of in owners])
                continue
            points = []
            for owner, attributes, of in owners:
                key = full_name, owner
                counts[key] = total = of[name]
                since_ns, before = (
                    self._delivered.get(key, (self._begun_ns, 0.0)) if subscription.is_delta else (self._begun_ns, 0.0)
                )
                points.append(sum_point(attributes, since_ns, time_ns, total - before))
            yield monotonic_sum(full_name, points, delta=subscription.is_delta)
