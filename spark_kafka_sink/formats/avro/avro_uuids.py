"""Encodes UUIDs as text of 36 characters or as 16 bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.formats.schemas.kernel import Kernel, MisfitError
from spark_kafka_sink.producer.serializers.arrays import first_not_utf8, first_row, fixed_width_array, is_text, is_uuid
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.producer.serializers.text import UUID_TEXT, uuid_text
from spark_kafka_sink.records.arrow_arrays import byte_lengths, numbers, offsets_of, valid_mask
from spark_kafka_sink.records.concat import Views, column_views
from spark_kafka_sink.records.parts import Part, Present
from spark_kafka_sink.records.varints import varints

_TEXT = 36
_DIGITS = [place for place in range(_TEXT) if place not in (8, 13, 18, 23)]


def uuid_kernel(kind: pa.DataType, *, as_text: bool) -> Kernel:
    """Returns the kernel for columns of `kind`. as_text: writes Avro's string; otherwise, its fixed of 16 bytes."""
    if is_text(kind):
        return _text_of_text if as_text else _bytes_of_text
    if not is_uuid(kind) and kind != pa.binary(16):
        raise MisfitError("it must be string, fixed_size_binary[16] or arrow.uuid")
    return _text_of_bytes if as_text else _bytes_of_bytes


def _text_of_text(column: pa.Array, present: Present | None) -> Sequence[Part]:
    return [*varints(_TEXT), _views(_checked(column, present))]


def _text_of_bytes(column: pa.Array, _present: Present | None) -> Sequence[Part]:
    return [*varints(_TEXT), _views(uuid_text(_storage(column)))]


def _bytes_of_bytes(column: pa.Array, _present: Present | None) -> Sequence[Part]:
    return [_views(_storage(column).cast(pa.binary()))]


def _bytes_of_text(column: pa.Array, present: Present | None) -> Sequence[Part]:
    column = _checked(column, present)
    valid = valid_mask(column)
    rows = np.arange(len(column)) if valid is None else np.flatnonzero(valid)
    offsets = offsets_of(column)
    data = np.frombuffer(column.buffers()[2], np.uint8)
    digits = data[offsets[rows][:, None] + np.array(_DIGITS)]
    halves = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0"))
    found = np.zeros((len(column), 16), np.uint8)
    found[rows] = halves[:, 0::2] << 4 | halves[:, 1::2]
    return [_views(fixed_width_array(found, valid))]


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _views(column: pa.Array) -> Views:
    return column_views(column, byte_lengths(column), None)


def _checked(column: pa.Array, present: Present | None) -> pa.Array:
    """Returns the text as string in lower case. Raises BadRowError for the first row that is not a UUID."""
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    bad = first_not_utf8(column)
    if bad is None:
        fits = numbers(pc.match_substring_regex(column, UUID_TEXT).cast(pa.uint8()), np.bool_)
        bad = first_row(~fits if present is None else present.rows & ~fits)
    if bad is not None:
        raise BadRowError(bad, "text is not a valid UUID (36 characters with dashes)")
    return pc.ascii_lower(column)
