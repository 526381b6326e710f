"""Encodes columns of messages level by level, without Python per row: each node of a plan turns a column into a field's parts.

A message inside another is its tag, its size and the parts of its fields, so it is not copied. The elements of repeated fields
and maps are encoded once, as one column. A row's elements are a view of that column's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.formats.nodes import PER_SECOND, MisfitError, Node, check_nulls, encoded, filled, rows_of
from spark_kafka_sink.formats.protobuf.message_types import tag
from spark_kafka_sink.formats.protobuf.protobuf_scalars import VARINT, ScalarKernel
from spark_kafka_sink.producer.serializers.arrays import binary_array, entries_of, first_row, list_parts, place_in_list
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.producer.serializers.map_keys import check_keys
from spark_kafka_sink.records.arrow_arrays import byte_lengths, numbers, valid_mask, validity
from spark_kafka_sink.records.concat import column_views
from spark_kafka_sink.records.parts import Part, Present, masked, sizes
from spark_kafka_sink.records.varints import Packed, unsigned_varints

NO_NULL_ELEMENT: Final = "is null, and a repeated field cannot hold null"
NO_NULL_IN_MAP: Final = "is null, and a map cannot hold null"
_WORD: Final = 8


@dataclass(frozen=True, slots=True)
class NothingNode(Node):
    """A field whose column has only nulls. `no_null` is what is wrong with them; None: the field is left out."""

    no_null: str | None = None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        check_nulls(column, present, self.no_null)
        return ()


@dataclass(frozen=True, slots=True)
class ScalarNode(Node):
    """A field of a scalar type or an enum, or one element of a repeated one.

    Attributes:
        tag: bytes before a value; none in a packed field.
        kernel: how values are written.
        skips_default: whether a value that is the default is left out.
        no_null: what is wrong with a null; None: the field is left out.
    """

    tag: bytes
    kernel: ScalarKernel
    skips_default: bool = False
    no_null: str | None = None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        if not check_nulls(column, present, self.no_null):
            return ()
        valid = _present(column)
        values = self.kernel.encode(column, valid, self.skips_default)
        if values.other is not None:
            rows = values.other if valid is None else values.other & valid.rows
            if not rows.any():
                return ()
            valid = None if rows.all() else Present.of(rows)
        return _masked_numbers(_tagged(self.tag, values.parts), valid)


@dataclass(frozen=True, slots=True)
class FieldsNode(Node):
    """The fields of a message.

    Attributes:
        fields: name, index in the column, and node of each field, in the order of their numbers.
        oneofs: name of each oneof, and the indexes of its columns.
    """

    fields: Sequence[tuple[str, int, Node]]
    oneofs: Sequence[tuple[str, Sequence[int]]] = ()

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        children = column.flatten()
        for name, indexes in self.oneofs:
            _check_oneof(name, [(column.type.field(index).name, _decoded(children[index])) for index in indexes])
        parts: list[Part] = []
        for name, index, node in self.fields:
            try:
                parts += node.parts(children[index], present)
            except BadRowError as bad:
                raise bad.inside(bad.row, f".{name}") from None
        return parts


@dataclass(frozen=True, slots=True)
class MessageNode(Node):
    """A field that is a message, or one element of a repeated one: its tag, its size and its fields."""

    tag: bytes
    fields: Node
    no_null: str | None = None

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        if not check_nulls(column, present, self.no_null):
            return ()
        valid = _present(column)
        inside = self.fields.parts(column, valid)
        size = sizes(inside)
        if isinstance(size, np.ndarray):
            size = size.view(np.uint64)
        return [*_masked_numbers(_tagged(self.tag, unsigned_varints(size)), valid), *inside]


@dataclass(frozen=True, slots=True)
class RepeatedNode(Node):
    """A repeated field: its elements one after the other.

    Attributes:
        element: an element, with its tag unless the field is packed.
        tag: the tag of a packed field; none for another.
        fixed: the kernel if all elements of a packed field have one size, so that they need not be encoded.
        no_null: what is wrong with a null element.
    """

    element: Node
    tag: bytes = b""
    fixed: ScalarKernel | None = None
    no_null: str = NO_NULL_ELEMENT

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        elements, starts = list_parts(column)
        if not len(elements):
            return ()
        try:
            held = self._held(elements, starts)
        except BadRowError as bad:
            row, place = place_in_list(starts, bad.row)
            raise bad.inside(row, f"[{place}]") from None
        lengths = byte_lengths(held)
        views = column_views(held, lengths, None)
        if not self.tag:
            return [views]
        size: NDArray[np.uint64] | int = views.lengths if isinstance(views.lengths, int) else views.lengths.view(np.uint64)
        rows = None if lengths.shortest > 0 else Present.of(lengths.rows > 0)
        head = unsigned_varints(size, (lengths.shortest, lengths.longest))
        return [*_masked_numbers(_tagged(self.tag, head), rows), views]

    def _held(self, elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
        """Returns each row's elements as one binary value."""
        check_nulls(elements, None, self.no_null)
        if self.fixed is not None and self.fixed.fixed is not None:
            values = np.ascontiguousarray(self.fixed.fixed(elements))
            return binary_array(values, starts * values.itemsize)
        return rows_of(encoded(self.element, elements, keep_nulls=False), starts)


@dataclass(frozen=True, slots=True)
class MapNode(Node):
    """A map: repeated messages of a key and a value."""

    entries: RepeatedNode

    def parts(self, column: pa.Array, present: Present | None) -> Sequence[Part]:
        entries = entries_of(column)
        elements, starts = list_parts(entries)
        check_keys(elements.flatten()[0], starts)
        return self.entries.parts(entries, present)


def _present(column: pa.Array) -> Present | None:
    """Returns the rows that are not null. None: all rows."""
    valid = valid_mask(column)
    return None if valid is None else Present.of(valid)


def _decoded(column: pa.Array) -> pa.Array:
    """Returns a column whose nulls are its own: the values of a dictionary may contain one."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) and column.dictionary.null_count else column


def _check_oneof(name: str, members: Sequence[tuple[str, pa.Array]]) -> None:
    """Raises BadRowError for the first row in which more than one member has a value."""
    set_in = [validity(column) for _, column in members if column.null_count < len(column)]
    if len(set_in) < 2:
        return
    counts = np.zeros(len(set_in[0]), np.int64)
    for rows in set_in:
        counts += rows
    bad = first_row(counts > 1)
    if bad is not None:
        names = " and ".join(field for field, column in members if column[bad].is_valid)
        raise BadRowError(bad, f"{names} have a value, and the oneof {name} can hold only one")


def _tagged(tag: bytes, parts: Sequence[Part]) -> list[Part]:
    """Returns the parts after a tag, in one word with the first part if it has room."""
    if not tag:
        return list(parts)
    head = Packed(int.from_bytes(tag, "little"), 8 * len(tag), len(tag))
    first = parts[0]
    if isinstance(first, Packed) and len(tag) + first.max_bytes <= _WORD:
        return [head.then(first), *parts[1:]]
    return [head, *parts]


def _masked_numbers(parts: Sequence[Part], present: Present | None) -> list[Part]:
    """Returns the same parts, numbers being empty in rows without a value. Views are empty there."""
    if present is None:
        return list(parts)
    return [masked([part], present)[0] if isinstance(part, Packed) else part for part in parts]


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
    return _TimeNode(name, PER_SECOND[kind.unit])


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
