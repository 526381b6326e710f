"""JSON serializer for single values and whole columns. Kafka itself has none.

A single value is written like json.dumps without spaces; this also holds for types that json.dumps does not support. Columns are
written a level of nesting at a time, by Arrow's kernels: no row is looked at in Python. Objects and lists are made of pieces that
each end in a comma; the last comma of a row is then overwritten by what closes it.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.arrays import (
    BadRowError,
    binary_array,
    check_keys,
    checked_text,
    entries_of,
    first_row,
    is_binary,
    is_list,
    is_text,
    is_uuid,
    joined,
    joined_lists,
    list_parts,
    null_column,
    place_in_list,
    text_array,
)
from spark_kafka_sink.producer.serializers.serializer import Serializer, refused_value
from spark_kafka_sink.producer.serializers.text import uuid_text, whole_pairs
from spark_kafka_sink.records.arrow_arrays import (
    array_of_bytes,
    array_of_numbers,
    byte_lengths,
    filled_numbers,
    offsets_of,
    scalar_of_bytes,
    text_scalar,
    valid_mask,
)


class JsonSerializer(Serializer):
    """Writes JSON without spaces, as UTF-8. A null row stays null, so that it can be a tombstone.

    Columns: struct (null fields are omitted, like Spark's to_json), list, map with string keys (both keep nulls), text, numbers
    (decimals with all digits), bool, binary as base64, dates and timestamps as ISO 8601 (those with a zone in UTC, with Z), and
    UUIDs as text.

    Single values: dict (keeps None), named tuple or Row (like a struct), list, tuple, and the Python classes for the types above.
    A datetime without a zone is local time.

    NaN, infinity and text with a lone surrogate raise SerializationError, because JSON has neither and UTF-8 not the last.
    """

    wanted = "a type that JSON can represent"

    def accepts(self, kind: pa.DataType) -> None:
        problem = why_not_json(kind)
        if problem is not None:
            raise SerializationError(f"a column of type {kind}, {problem}", type=str(kind))

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        return None if value is None else json_bytes(value)

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        self.accepts(column.type)
        if pa.types.is_null(column.type):
            return null_column(len(column))
        try:
            return json_texts(column)
        except BadRowError as bad:
            raise SerializationError(f"row {bad.row}: {bad}", row=bad.row) from None


def json_bytes(value: Any) -> bytes:
    """Returns a value's JSON in UTF-8. Raises SerializationError for what JSON cannot represent."""
    try:
        return _json_text(value).encode()
    except RecursionError:
        raise SerializationError("the value is nested too deeply, or contains itself") from None


def _json_text(value: Any) -> str:
    """Returns a value's JSON. Raises SerializationError for NaN, infinity, keys that are not text, and unsupported classes."""
    writer = _OF_CLASS.get(type(value)) or _writer(value)
    return writer(value)


def _writer(value: Any) -> Callable[[Any], str]:
    for kinds, writer in _WRITERS:
        if isinstance(value, kinds):
            return writer
    raise refused_value(value, "a type that JSON can represent")


def _string(value: str) -> str:
    return encode_basestring(whole_pairs(value, "UTF-8"))


def _object(pairs: Mapping[Any, Any]) -> str:
    return "{" + ",".join(f"{_key(key)}:{_json_text(value)}" for key, value in pairs.items()) + "}"


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise refused_value(key, "text for a JSON key")
    return _string(key)


def _sequence(values: Sequence[Any]) -> str:
    """A tuple with field names (Spark's Row, namedtuple) is a struct: fields that are None are omitted."""
    names = getattr(values, "__fields__", None) or getattr(values, "_fields", None)
    if names is None:
        return "[" + ",".join(map(_json_text, values)) + "]"
    if len(set(names)) < len(names):
        raise SerializationError(_twice(names))
    return _object({name: value for name, value in zip(names, values, strict=True) if value is not None})


def _float(value: float) -> str:
    if not isfinite(value):
        raise SerializationError(f"{value}, which JSON cannot represent")
    return repr(float(value))


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise SerializationError(f"{value}, which JSON cannot represent")
    return str(value)


def _datetime(value: datetime.datetime) -> str:
    in_utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return f'"{in_utc.isoformat(timespec="microseconds")}Z"'


def _time(value: datetime.time) -> str:
    return f'"{value.isoformat(timespec="microseconds")}"'


def _blob(value: bytes | bytearray | memoryview) -> str:
    return f'"{base64.b64encode(value).decode()}"'


# The first match counts: bool is a subclass of int, datetime of date.
_WRITERS: Sequence[tuple[Any, Callable[[Any], str]]] = (
    (str, _string),
    (type(None), lambda _: "null"),
    ((bool, np.bool_), lambda value: "true" if value else "false"),
    ((int, np.integer), lambda value: str(int(value))),
    (np.float32, lambda value: _float(float(str(value)))),  # the shortest digits, as in a float column
    ((float, np.floating), _float),
    (Mapping, _object),
    ((list, tuple), _sequence),
    (Decimal, _decimal),
    (datetime.datetime, _datetime),
    (datetime.date, lambda value: f'"{value.isoformat()}"'),
    (datetime.time, _time),
    ((bytes, bytearray, memoryview), _blob),
    (UUID, lambda value: f'"{value}"'),
)

# Looks up most values without testing each class in turn, in half the time.
_OF_CLASS: Mapping[type, Callable[[Any], str]] = {
    kind: _writer(example)
    for kind, example in ((str, ""), (int, 0), (float, 0.0), (bool, True), (dict, {}), (list, []), (type(None), None))
}


RENAME: Final = "; rename one of them"


def _twice(names: Sequence[str]) -> str:
    """Returns what is wrong with names of which one is there twice."""
    name = next(name for name in names if names.count(name) > 1)
    return f"an object of JSON cannot have two fields {name!r}{RENAME}"


# Columns


def why_not_json(kind: pa.DataType) -> str | None:
    """Returns what of a type JSON cannot hold; None: it can hold all of it."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            return f"but {_twice(names)}"
        return next(filter(None, (why_not_json(kind.field(place).type) for place in range(kind.num_fields))), None)
    if is_list(kind):
        return why_not_json(kind.value_type)
    if pa.types.is_map(kind):
        if not is_text(kind.key_type):
            return f"but keys of JSON are text, not {kind.key_type}; cast them to string"
        return why_not_json(kind.item_type)
    return None if _column_writer(kind) is not None else f"but JSON has nothing for {kind}; cast that to string"


def json_texts(column: pa.Array) -> pa.Array:
    """Each row's JSON as string, null for null. `why_not_json` has nothing against the type. Raises BadRowError."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _objects(column)
    if is_list(kind):
        return _lists(column)
    if pa.types.is_map(kind):
        return _maps(column)
    writer = _column_writer(kind)
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
    present = pc.binary_join_element_wise(*pieces, text_scalar(""), null_handling="replace", null_replacement="")
    return _with_nulls_of(column, _closed("{", present, "}"))


def _lists(column: pa.Array) -> pa.Array:
    elements, starts = list_parts(column)
    pieces = joined(_texts_inside(elements, starts), text_scalar(","))
    return _with_nulls_of(column, _closed("[", text_array(joined_lists(pieces, starts)), "]"))


def _maps(column: pa.Array) -> pa.Array:
    elements, starts = list_parts(entries_of(column))
    keys, values = elements.flatten()
    check_keys(keys, starts)
    pieces = joined(_texts_inside(keys, starts), text_scalar(":"), _texts_inside(values, starts), text_scalar(","))
    return _with_nulls_of(column, _closed("{", text_array(joined_lists(pieces, starts)), "}"))


def _texts_inside(elements: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
    try:
        return json_texts(elements).fill_null(text_scalar("null"))
    except BadRowError as bad:
        row, place = place_in_list(starts, bad.row)
        raise bad.inside(row, f"[{place}]") from None


def _closed(opening: str, pieces: pa.Array, closing: str) -> pa.Array:
    """Returns the pieces between brackets, without the trailing comma of each non-empty piece."""
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
        raise BadRowError(error.facts["row"], "text is not valid UTF-8") from None
    return _quoted(column)


def _in_quotes(column: pa.Array) -> pa.Array:
    return joined(text_scalar('"'), column.cast(pa.string()), text_scalar('"'))


def _floats(column: pa.Array) -> pa.Array:
    """The shortest digits that are the same number; 1.0 keeps its fraction, so that it stays a float."""
    values = filled_numbers(column.cast(pa.float64()), np.float64, 0)
    bad = first_row(~np.isfinite(values))
    if bad is not None:
        raise BadRowError(bad, f"{values[bad]}, which JSON cannot represent")
    # Arrow has no text for halves.
    texts = column.cast(pa.float32() if pa.types.is_float16(column.type) else column.type).cast(pa.string())
    if not (values == np.floor(values)).any():
        return texts
    whole = pc.invert(pc.match_substring_regex(texts, "[.e]"))
    return pc.if_else(whole, joined(texts, text_scalar(".0")), texts)


def _in_calendar(texts: pa.Array) -> pa.Array:
    """Raises BadRowError for a time after the year 32767 or so, instead of which Arrow writes `<value out of range: ...>`."""
    bad = first_row(pc.fill_null(pc.starts_with(texts, "<"), False).to_numpy(zero_copy_only=False))
    if bad is not None:
        raise BadRowError(bad, "its year is not from 1 to 9999")
    return texts


def _dates(column: pa.Array) -> pa.Array:
    return _in_quotes(_in_calendar(column.cast(pa.string())))


def _timestamps(column: pa.Array) -> pa.Array:
    """Returns a timestamp without a zone unchanged; with one in UTC, which needs no time zone database."""
    zone = "" if column.type.tz is None else "Z"
    texts = _in_calendar(column.view(pa.int64()).view(pa.timestamp(column.type.unit)).cast(pa.string()))
    return joined(text_scalar('"'), pc.replace_substring(texts, " ", "T", max_replacements=1), text_scalar(f'{zone}"'))


_COLUMN_WRITERS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = (
    (is_text, _strings),
    (
        lambda kind: pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind),
        lambda column: column.cast(pa.string()),
    ),
    (pa.types.is_floating, _floats),
    (lambda kind: pa.types.is_date(kind) or pa.types.is_time(kind), _dates),
    (pa.types.is_timestamp, _timestamps),
    (is_binary, lambda column: _in_quotes(_base64(column.cast(pa.binary())))),
    (pa.types.is_null, lambda column: pa.nulls(len(column), pa.string())),
    (
        lambda kind: pa.types.is_dictionary(kind) and why_not_json(kind.value_type) is None,
        lambda column: json_texts(column.dictionary_decode()),
    ),
    (is_uuid, lambda column: _in_quotes(uuid_text(column.storage))),
)


def _column_writer(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    return next((writer for fits, writer in _COLUMN_WRITERS if fits(kind)), None)


# Strings and binary

# Characters that must be escaped in a JSON string. The backslash comes first, because the other escapes contain one.
_ESCAPED = [ord("\\"), ord('"'), *range(0x20)]


def _quoted(column: pa.Array) -> pa.Array:
    """string with quotes around each row, with the escapes of json.dumps(ensure_ascii=False); null stays null."""
    for byte in _present(column):
        column = pc.replace_substring(column, chr(byte), json.dumps(chr(byte))[1:-1])
    return joined(text_scalar('"'), column, text_scalar('"'))


def _present(column: pa.Array) -> list[int]:
    """Which of those bytes the column has at all: most columns have none, and each costs a pass over all of it."""
    offsets = offsets_of(column)
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return []
    data = np.frombuffer(column.buffers()[2], np.uint8, last - first, first)
    suspects = data[(data < 0x20) | (data == ord('"')) | (data == ord("\\"))]
    counts = np.bincount(suspects, minlength=256)
    return [byte for byte in _ESCAPED if counts[byte]]


def _base64(column: pa.Array) -> pa.Array:
    """Padded with '='; null stays null. All is encoded at once: rows are filled up to threes of bytes, so none shares a four of
    letters.
    """
    filling = -np.maximum(byte_lengths(column).rows, 0) % 3
    filled = joined(
        column.fill_null(scalar_of_bytes(b"", pa.binary())), array_of_bytes([b"", b"\0", b"\0\0"]).take(array_of_numbers(filling))
    )
    offsets = offsets_of(filled)
    data = memoryview(filled.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
    letters = np.frombuffer(bytearray(binascii.b2a_base64(data, newline=False)), np.uint8)
    ends = (offsets - offsets[0]).astype(np.int64) // 3 * 4
    letters[ends[1:][filling >= 1] - 1] = ord("=")
    letters[ends[1:][filling == 2] - 2] = ord("=")
    return text_array(binary_array(letters, ends, valid_mask(column)))
