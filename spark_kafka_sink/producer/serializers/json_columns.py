"""JSON text of a column, a level of nesting at a time, by Arrow's kernels over whole columns: no row is looked at in Python.

Objects and lists are made of pieces that each end in a comma; the last comma of a row is then overwritten by what closes it.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.serializers.arrays import (
    binary_array,
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
    place_in_list,
    text_array,
)
from spark_kafka_sink.producer.serializers.bad_row import BadRowError
from spark_kafka_sink.producer.serializers.map_keys import check_keys
from spark_kafka_sink.producer.serializers.text import uuid_text
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


def why_not_json(kind: pa.DataType) -> str | None:
    """Returns what of a type JSON cannot hold; None: it can hold all of it."""
    if pa.types.is_struct(kind):
        return next(filter(None, (why_not_json(kind.field(place).type) for place in range(kind.num_fields))), None)
    if is_list(kind):
        return why_not_json(kind.value_type)
    if pa.types.is_map(kind):
        if not is_text(kind.key_type):
            return f"but keys of JSON are text, not {kind.key_type}; cast them to string"
        return why_not_json(kind.item_type)
    return None if _writer(kind) is not None else f"but JSON has nothing for {kind}; cast that to string"


def json_texts(column: pa.Array) -> pa.Array:
    """Each row's JSON as string, null for null. `why_not_json` has nothing against the type. Raises BadRowError."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _objects(column)
    if is_list(kind):
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
    """Returns the JSON of the elements, with nulls as the text `null`."""
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


def _timestamps(column: pa.Array) -> pa.Array:
    """Returns a timestamp without a zone unchanged; with one in UTC, which needs no time zone database."""
    zone = "" if column.type.tz is None else "Z"
    texts = column.view(pa.int64()).view(pa.timestamp(column.type.unit)).cast(pa.string())
    return joined(text_scalar('"'), pc.replace_substring(texts, " ", "T", max_replacements=1), text_scalar(f'{zone}"'))


_WRITERS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = (
    (is_text, _strings),
    (
        lambda kind: pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind),
        lambda column: column.cast(pa.string()),
    ),
    (pa.types.is_floating, _floats),
    (lambda kind: pa.types.is_date(kind) or pa.types.is_time(kind), _in_quotes),
    (pa.types.is_timestamp, _timestamps),
    (is_binary, lambda column: _in_quotes(_base64(column.cast(pa.binary())))),
    (pa.types.is_null, lambda column: pa.nulls(len(column), pa.string())),
    (
        lambda kind: pa.types.is_dictionary(kind) and why_not_json(kind.value_type) is None,
        lambda column: json_texts(column.dictionary_decode()),
    ),
    (is_uuid, lambda column: _in_quotes(uuid_text(column.storage))),
)


def _writer(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    return next((writer for fits, writer in _WRITERS if fits(kind)), None)


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
    """string of each row, padded with '='; null stays null. column: binary.

    It is encoded as a whole: rows are filled up to threes of bytes, so that none shares a four of letters.
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
