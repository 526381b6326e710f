"""Protobuf's own messages that stand for values of other types: Timestamp, Duration and the wrappers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.formats.protobuf.message_types import tag
from spark_kafka_sink.formats.protobuf.protobuf_scalars import VARINT
from spark_kafka_sink.formats.schemas.kernel import MisfitError, filled
from spark_kafka_sink.formats.schemas.nodes import Node
from spark_kafka_sink.producer.serializers.arrays import first_row
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.records.arrow_arrays import numbers
from spark_kafka_sink.records.parts import Part, Present, masked
from spark_kafka_sink.records.varints import Packed, unsigned_varints

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
WRAPPERS: Final[Mapping[str, str]] = {
    f"google.protobuf.{name}Value": kind
    for name, kind in (
        ("Double", "double"),
        ("Float", "float"),
        ("Int64", "int64"),
        ("UInt64", "uint64"),
        ("Int32", "int32"),
        ("UInt32", "uint32"),
        ("Bool", "bool"),
        ("String", "string"),
        ("Bytes", "bytes"),
    )
}
NOT_SUPPORTED: Final = tuple(f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue"))
LIMITS_S: Final[Mapping[str, tuple[int, int]]] = {
    TIMESTAMP: (-62_135_596_800, 253_402_300_799),  # the years 1 to 9999
    DURATION: (-315_576_000_000, 315_576_000_000),  # 10,000 years
}
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS: Final = Packed(int.from_bytes(tag(1, VARINT), "little"), 8, 1)
_NANOS: Final = Packed(int.from_bytes(tag(2, VARINT), "little"), 8, 1)


def seconds_and_nanos(name: str, kind: pa.DataType) -> Node | None:
    """Returns the fields of a Timestamp or Duration; None if a struct brings them. Raises MisfitError for another column."""
    if pa.types.is_struct(kind):
        return None
    if name == TIMESTAMP:
        if not pa.types.is_timestamp(kind):
            raise MisfitError("it must be timestamp")
        if kind.tz is None:
            raise MisfitError("it is in UTC: use a timestamp with a time zone")
    elif not pa.types.is_duration(kind):
        raise MisfitError("it must be an interval of days to seconds")
    return _TimeNode(name, _PER_SECOND[kind.unit])


@dataclass(frozen=True, slots=True)
class _TimeNode(Node):
    """The fields `seconds` and `nanos`. Both are left out if they are 0."""

    name: str
    per_second: int

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        values = filled(numbers(column, np.int64), present)
        seconds = values // self.per_second
        nanos = (values - seconds * self.per_second) * (10**9 // self.per_second)
        if self.name == DURATION:  # both have the sign of the duration
            cut = (seconds < 0) & (nanos > 0)
            seconds = seconds + cut
            nanos = nanos - cut * np.int64(10**9)
        least, greatest = LIMITS_S[self.name]
        if int(seconds.min()) < least or int(seconds.max()) > greatest:
            bad = first_row((seconds < least) | (seconds > greatest))
            assert bad is not None
            raise BadRowError(bad, f"the value is out of range for {self.name}")
        return [*_field(_SECONDS, seconds, present), *_field(_NANOS, nanos, present)]


def _field(before: Packed, values: NDArray[np.int64], present: Present | None) -> Sequence[Part]:
    used = values != 0
    if present is not None:
        used &= present.rows
    if not used.any():
        return ()
    first, *more = unsigned_varints(values.view(np.uint64))
    parts: list[Part] = [before.then(first), *more] if first.max_bytes < 8 else [before, first, *more]
    return masked(parts, None if used.all() else Present.of(used))
