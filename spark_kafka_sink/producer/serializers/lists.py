"""Kafka's ListSerializer: elements serialized by an inner serializer, with one of two strategies.

CONSTANT_SIZE (numbers and UUIDs): byte 0 | int32 number of nulls | int32 index of each | int32 size | the elements' bytes.
VARIABLE_SIZE (all others): byte 1 | int32 size | int32 length, -1 for null, and bytes of each element.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import OptionError, SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import (
    as_binary,
    binary_array,
    fixed_width_array,
    is_list,
    joined,
    joined_lists,
    list_parts,
    null_column,
    place_in_list,
)
from spark_kafka_sink.producer.serializers.primitives import (
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    LongSerializer,
    ShortSerializer,
)
from spark_kafka_sink.producer.serializers.serializer import Serializer, refused_type, refused_value
from spark_kafka_sink.producer.serializers.text import UUIDSerializer
from spark_kafka_sink.records.arrow_arrays import byte_lengths, scalar_of_bytes, valid_mask

# ListSerializer.FIXED_LENGTH_SERIALIZERS: exactly these classes, without BooleanSerializer.
_CONSTANT_SIZE = (ShortSerializer, IntegerSerializer, FloatSerializer, LongSerializer, DoubleSerializer, UUIDSerializer)


class ListSerializer(Serializer):
    """Accepts lists and tuples, and columns of list, large_list and fixed_size_list. An empty list is not null.

    Args:
        inner: serializer of the elements; None takes it from default.list.key.serde.inner or default.list.value.serde.inner.
    """

    wanted = "a list"

    def __init__(self, inner: Serializer | None = None) -> None:
        self._inner = inner

    def complete(self, inner: Callable[[], Serializer]) -> None:
        if self._inner is None:
            self._inner = inner()

    @property
    def inner(self) -> Serializer:
        if self._inner is None:
            raise OptionError("a ListSerializer requires an inner serializer", option="default.list.value.serde.inner")
        return self._inner

    @property
    def _constant_size(self) -> bool:
        return type(self._inner) in _CONSTANT_SIZE

    def accepts(self, kind: pa.DataType) -> None:
        if pa.types.is_null(kind):
            return
        if not is_list(kind):
            raise refused_type(kind, f"a list of {self.inner.wanted}")
        try:
            self.inner.accepts(kind.value_type)
        except SerializationError as error:
            raise SerializationError(f"elements: {error.message}", **error.facts) from None

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    # One list

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise refused_value(value, f"a list of {self.inner.wanted}")
        elements = [self._element(topic, place, element) for place, element in enumerate(value)]
        return self._constant(elements) if self._constant_size else self._variable(elements)

    def _element(self, topic: str, place: int, element: Any) -> bytes | None:
        if element is None:
            return None
        try:
            found = self.inner.serialize(topic, element)
        except SerializationError as error:
            raise SerializationError(f"element {place}: {error.message}", **error.facts) from None
        if found is None:
            raise SerializationError(f"element {place}: serialized to null, which this list format cannot represent")
        return found

    @staticmethod
    def _constant(elements: Sequence[bytes | None]) -> bytes:
        nulls = [place for place, element in enumerate(elements) if element is None]
        head = struct.pack(f">bi{len(nulls)}ii", 0, len(nulls), *nulls, len(elements))
        return b"".join([head, *(element for element in elements if element is not None)])

    @staticmethod
    def _variable(elements: Sequence[bytes | None]) -> bytes:
        parts = [struct.pack(">bi", 1, len(elements))]
        for element in elements:
            parts.append(struct.pack(">i", -1 if element is None else len(element)))
            parts.append(element or b"")
        return b"".join(parts)

    # A column of lists

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        elements, starts = list_parts(column)
        found = self._elements(topic, elements, starts)
        valid = valid_mask(column)
        if self._constant_size:
            return _constant_column(found, starts, valid)
        return _variable_column(found, starts, valid)

    def _elements(self, topic: str, elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
        try:
            found = as_binary(self.inner.serialize_column(topic, elements))
        except SerializationError as error:
            at = error.facts.get("row")
            if at is None:
                raise
            row, place = place_in_list(starts, at)
            problem = error.message.removeprefix(f"row {at}: ")
            raise SerializationError(f"row {row}: element {place}: {problem}", **{**error.facts, "row": row}) from None
        if found.null_count != elements.null_count:
            raise SerializationError("an element was serialized to null, which this list format cannot represent")
        return found


def _constant_column(elements: pa.Array, starts: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> pa.Array:
    present = valid_mask(elements)
    if present is None:
        nulls, counts, starts_present = np.zeros(0, ">i4"), np.zeros(len(starts), np.int64), starts
    else:
        at = np.flatnonzero(~present)
        rows = np.searchsorted(starts, at, "right") - 1
        nulls = (at - starts[rows]).astype(">i4")
        counts = np.searchsorted(at, starts)
        starts_present = starts - counts
        elements = elements.drop_null()
    head = fixed_width_array(_head(0, np.diff(counts)), valid)
    size = fixed_width_array(np.diff(starts).astype(">i4"), None)
    return joined(head, binary_array(nulls, counts * 4), size, joined_lists(elements, starts_present))


def _variable_column(elements: pa.Array, starts: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> pa.Array:
    lengths = fixed_width_array(byte_lengths(elements).rows.astype(">i4"), None)
    with_lengths = joined(lengths, elements.fill_null(scalar_of_bytes(b"", elements.type)) if elements.null_count else elements)
    return joined(fixed_width_array(_head(1, np.diff(starts)), valid), joined_lists(with_lengths, starts))


def _head(strategy: int, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns the strategy's byte and an int32 for each row, shape (rows, 5)."""
    head = np.full((len(numbers), 5), strategy, np.uint8)
    head[:, 1:] = numbers.astype(">i4").view(np.uint8).reshape(-1, 4)
    return head
