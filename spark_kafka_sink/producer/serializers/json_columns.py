"""JSON text of a column, a level of nesting at a time, by Arrow's kernels over whole columns: no row is looked at in Python.

Objects and lists are made of pieces that each end in a comma; the last comma of a row is then overwritten by what closes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.serializers.base64_column import base64_text
from spark_kafka_sink.producer.serializers.binary_arrays import as_binary, checked_text, first_row, joined, text_array
from spark_kafka_sink.producer.serializers.json_strings import quoted
from spark_kafka_sink.producer.serializers.list_columns import joined_lists, list_parts, place_in_list
from spark_kafka_sink.producer.serializers.text import uuid_text
from spark_kafka_sink.records.arrow_arrays import (
    array_of_bytes,
    array_of_numbers,
    filled_numbers,
    offsets_of,
    scalar_of_bytes,
    text_scalar,
)


class BadRowError(Exception):
    """A row that JSON cannot hold. `path` leads to the value inside of it."""

    def __init__(self, row: int, problem: str, path: str = "") -> None:
        super().__init__(row, problem, path)
        self.row, self.problem, self.path = row, problem, path

    def __str__(self) -> str:
        return f"{self.path.lstrip('.')}: {self.problem}" if self.path else self.problem

    def inside(self, row: int, step: str) -> BadRowError:
        return BadRowError(row, self.problem, step + self.path)


def why_not_json(kind: pa.DataType) -> str | None:
    """What of a type JSON cannot hold; None: it can hold all of it."""
    if pa.types.is_struct(kind):
        return next(filter(None, (why_not_json(kind.field(place).type) for place in range(kind.num_fields))), None)
    if _is_list(kind):
        return why_not_json(kind.value_type)
    if pa.types.is_map(kind):
        if not _is_text(kind.key_type):
            return f"but keys of JSON are text, not {kind.key_type}; cast them to string"
        return why_not_json(kind.item_type)
    return None if _writer(kind) is not None else f"but JSON has nothing for {kind}; cast that to string"


def json_texts(column: pa.Array) -> pa.Array:
    """Each row's JSON as string, null for null. `why_not_json` has nothing against the type. Raises BadRowError."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _objects(column)
    if _is_list(kind):
        return _lists(column)
    if pa.types.is_map(kind):
        return _maps(column)
    writer = _writer(kind)
    assert writer is not None
    return writer(column)


# Objects, lists, maps


def _objects(column: pa.Array) -> pa.Array:
    if column.type.num_fields == 0:
        return _with_nulls_of(column, array_of_bytes([b"{}"] * len(column), pa.string()))
    pieces: list[pa.Array] = []
    for field, values in zip(column.type, column.flatten(), strict=True):
        try:
            text = json_texts(values)
        except BadRowError as bad:
            raise bad.inside(bad.row, f".{field.name}") from None
        pieces.append(joined(text_scalar(f"{json.dumps(field.name, ensure_ascii=False)}:"), text, text_scalar(",")))
    return _with_nulls_of(column, _closed("{", _joined_or_nothing(pieces), "}"))


def _joined_or_nothing(pieces: Sequence[pa.Array]) -> pa.Array:
    """Each row's pieces that are not null, one after the other."""
    return pc.binary_join_element_wise(*pieces, text_scalar(""), null_handling="replace", null_replacement="")


def _lists(column: pa.Array) -> pa.Array:
    elements, starts = list_parts(column)
    pieces = joined(_texts_inside(elements, starts), text_scalar(","))
    return _with_nulls_of(column, _closed("[", text_array(joined_lists(pieces, starts)), "]"))


def _maps(column: pa.Array) -> pa.Array:
    kind = column.type
    entries = pa.list_(pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)]))
    elements, starts = list_parts(column.cast(entries))
    keys, values = elements.flatten()
    pieces = joined(_texts_inside(keys, starts), text_scalar(":"), _texts_inside(values, starts), text_scalar(","))
    return _with_nulls_of(column, _closed("{", text_array(joined_lists(pieces, starts)), "}"))


def _texts_inside(elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
    """The elements' JSON, null as text."""
    try:
        return json_texts(elements).fill_null(text_scalar("null"))
    except BadRowError as bad:
        row, place = place_in_list(starts, bad.row)
        raise bad.inside(row, f"[{place}]") from None


def _closed(opening: str, pieces: pa.Array, closing: str) -> pa.Array:
    """Between brackets, without the comma at the end of what has one."""
    offsets = offsets_of(pieces)
    data = np.array(np.frombuffer(pieces.buffers()[2] or b"", np.uint8))
    ends = offsets[1:]
    has_any = ends > offsets[:-1]
    data[ends[has_any] - 1] = ord(closing)
    closed = pa.Array.from_buffers(pa.string(), len(pieces), [None, pa.py_buffer(np.array(offsets)), pa.py_buffer(data)])
    if has_any.all():
        return joined(text_scalar(opening), closed)
    return joined(
        array_of_bytes([(opening + closing).encode(), opening.encode()], pa.string()).take(
            array_of_numbers(has_any.astype(np.int8))
        ),
        closed,
    )


def _with_nulls_of(column: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, scalar_of_bytes(None, pa.string())) if column.null_count else texts


# Everything else


def _strings(column: pa.Array) -> pa.Array:
    column = column.cast(pa.string())
    try:
        checked_text(column)
    except SerializationError as error:
        raise BadRowError(error.facts["row"], "text that is no UTF-8") from None
    return quoted(column)


def _as_text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _in_quotes(column: pa.Array) -> pa.Array:
    return joined(text_scalar('"'), column.cast(pa.string()), text_scalar('"'))


def _floats(column: pa.Array) -> pa.Array:
    """The shortest digits that are the same number; 1.0 keeps its fraction, so that it stays a float."""
    values = filled_numbers(column.cast(pa.float64()), np.float64, 0)
    bad = first_row(~np.isfinite(values))
    if bad is not None:
        raise BadRowError(bad, f"{values[bad]}, which JSON cannot hold")
    # Arrow has no text for halves.
    texts = column.cast(pa.float32() if pa.types.is_float16(column.type) else column.type).cast(pa.string())
    if not (values == np.floor(values)).any():
        return texts
    whole = pc.invert(pc.match_substring_regex(texts, "[.e]"))
    return pc.if_else(whole, joined(texts, text_scalar(".0")), texts)


def _timestamps(column: pa.Array) -> pa.Array:
    """Without a zone: as it is. With one: UTC, and no need of a time zone database."""
    zone = "" if column.type.tz is None else "Z"
    texts = column.view(pa.int64()).view(pa.timestamp(column.type.unit)).cast(pa.string())
    return joined(text_scalar('"'), pc.replace_substring(texts, " ", "T", max_replacements=1), text_scalar(f'{zone}"'))


def _blobs(column: pa.Array) -> pa.Array:
    return _in_quotes(base64_text(as_binary(column.cast(pa.binary()))))


def _uuids(column: pa.Array) -> pa.Array:
    return _in_quotes(uuid_text(column.storage))


def _nulls(column: pa.Array) -> pa.Array:
    return pa.nulls(len(column), pa.string())


def _decoded(column: pa.Array) -> pa.Array:
    return json_texts(column.dictionary_decode())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(is_plain or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


_WRITERS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = (
    (_is_text, _strings),
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind), _as_text),
    (pa.types.is_floating, _floats),
    (lambda kind: pa.types.is_date(kind) or pa.types.is_time(kind), _in_quotes),
    (pa.types.is_timestamp, _timestamps),
    (_is_binary, _blobs),
    (pa.types.is_null, _nulls),
    (lambda kind: pa.types.is_dictionary(kind) and why_not_json(kind.value_type) is None, _decoded),
    (lambda kind: isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid", _uuids),
)


def _writer(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    return next((writer for fits, writer in _WRITERS if fits(kind)), None)
