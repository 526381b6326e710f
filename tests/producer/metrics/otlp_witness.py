"""Pushed metrics as Google's Protobuf library reads them, by OpenTelemetry's messages (otlp_metrics.proto)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from grpc_tools import protoc

PROTO = Path(__file__).with_name("otlp_metrics.proto")


@cache
def metrics_data_class() -> type[Message]:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "set")
        assert protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={made}", PROTO.name]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName("opentelemetry.MetricsData"))
    return found


@dataclass(frozen=True)
class Point:
    """One value. temporality: "delta" or "cumulative" of a sum, "" of a gauge, which has no start. Times are in ns since 1970."""

    name: str
    attributes: dict[str, str]
    value: float
    temporality: str
    start_ns: int
    time_ns: int


@dataclass(frozen=True)
class Pushed:
    """Everything in one payload."""

    resource: dict[str, str]
    points: list[Point]

    def names(self) -> set[str]:
        return {point.name for point in self.points}

    def point(self, name: str, **attributes: str) -> Point:
        """The only point of this name (without "org.apache.kafka.producer.") and these attributes."""
        full = f"org.apache.kafka.producer.{name}"
        (found,) = [point for point in self.points if point.name == full and point.attributes == attributes]
        return found

    def value(self, name: str, **attributes: str) -> float:
        return self.point(name, **attributes).value


def read(data: bytes) -> Pushed:
    """Reads MetricsData. Fields that the messages do not have are errors."""
    parsed: Any = metrics_data_class().FromString(data)
    assert parsed.SerializeToString() == data, "a field is unknown or in another order"
    if not parsed.resource_metrics:
        return Pushed({}, [])
    resources = [_attributes(each.resource.attributes) for each in parsed.resource_metrics]
    assert all(each == resources[0] for each in resources)
    return Pushed(resources[0], list(_points(parsed)))


def read_any(data: bytes) -> Pushed:
    """Reads what another client pushed, which may hold more than this one pushes."""
    return read(metrics_data_class().FromString(data).SerializeToString())


def _points(parsed: Any) -> Iterator[Point]:
    for resource in parsed.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                temporality = ("", "delta", "cumulative")[metric.sum.aggregation_temporality] if kind == "sum" else ""
                assert kind == "gauge" or metric.sum.is_monotonic
                for point in getattr(metric, kind).data_points:
                    yield Point(
                        metric.name,
                        _attributes(point.attributes),
                        getattr(point, point.WhichOneof("value")),
                        temporality,
                        point.start_time_unix_nano,
                        point.time_unix_nano,
                    )


def _attributes(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}
