"""Rows of the cost benchmark: events as JSON text or as Avro, of an exact size, the same in every run and on every machine.

Every value of a payload has the same layout, so a file of rows is a matrix of bytes: a template, in which only some columns are
random. Names repeat from row to row and numbers do not, as in most events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.cost.cells import FILES, KEY_BYTES, Format, Payload

Random = np.random.Generator

# Marks in a JSON template: a digit, and a digit that is not 0, because a JSON number does not begin with 0.
_DIGIT, _FIRST_DIGIT = ord("#"), ord("^")
_EVENT = '{"id":^########,"user":"u#####","at":17########,"amount":^##.##'
_MORE = ',"field{:02d}":"#########"'
_FILLER, _FILLER_END = ',"note":"', '"}'

# The fields of an Avro record, as in its schema.
AVRO_FIELDS: Sequence[Mapping[str, object]] = (
    {"name": "id", "type": "long"},
    {"name": "user", "type": "string"},
    {"name": "at", "type": "long"},
    {"name": "amount", "type": "double"},
    {"name": "fields", "type": {"type": "array", "items": "string"}},
    {"name": "note", "type": "string"},
)
_LONG_BYTES = 5  # a varint of zigzag, for numbers from 2**27 up to 2**34
_USER_DIGITS, _FIELD_DIGITS = 5, 9

HEADERS = ("trace", "source")
_TRACE_BYTES = 32
_SOURCE = b"checkout"


def write_rows(payload: Payload, rows: int, folder: Path) -> list[Path]:
    """Writes `rows` rows to Parquet files of `folder`, each with the same number of rows, and returns their paths."""
    paths = [folder / f"{number:02}.parquet" for number in range(FILES)]
    for number, path in enumerate(paths):
        pq.write_table(table(payload, rows // FILES, number), path, use_dictionary=False)
    return paths


def table(payload: Payload, rows: int, seed: int) -> pa.Table:
    """Returns rows of a key and a value, and headers if the payload has them."""
    random = np.random.default_rng(seed)
    value, type_ = VALUES[payload.format](rows, payload.value_bytes, random), TYPES[payload.format]
    columns = {"key": _column(_digits(random, rows, KEY_BYTES), pa.string()), "value": _column(value, type_)}
    if payload.headers:
        columns["headers"] = _headers(rows, random)
    return pa.table(columns)


def json_values(rows: int, value_bytes: int, random: Random) -> NDArray[np.uint8]:
    """Returns a matrix whose lines are JSON objects of `value_bytes` bytes."""
    template = np.frombuffer(json_template(value_bytes).encode(), np.uint8)
    values = np.tile(template, (rows, 1))
    for mark, lowest in ((_DIGIT, 0), (_FIRST_DIGIT, 1)):
        places = np.flatnonzero(template == mark)
        values[:, places] = random.integers(ord("0") + lowest, ord("9") + 1, (rows, len(places)), dtype=np.uint8)
    return values


def json_template(value_bytes: int) -> str:
    """Returns a JSON object of `value_bytes` bytes with marks in place of its random digits."""
    text, number = _EVENT, 0
    least = len(_FILLER + _FILLER_END)
    while len(text) + len(_MORE.format(number)) + least <= value_bytes:
        text += _MORE.format(number)
        number += 1
    left = value_bytes - len(text) - least
    if left < 0:
        raise ValueError(f"a JSON event needs {len(text) + least} bytes, not {value_bytes}")
    return f"{text}{_FILLER}{'#' * left}{_FILLER_END}"


def avro_values(rows: int, value_bytes: int, random: Random) -> NDArray[np.uint8]:
    """Returns a matrix whose lines are records of AVRO_FIELDS, of `value_bytes` bytes."""
    event = [
        _longs(random.integers(2**27, 10**9, rows)),
        _strings(random, rows, _USER_DIGITS),
        _longs(random.integers(1_700_000_000, 1_800_000_000, rows)),
        (random.integers(10_000, 100_000, rows) / 100).astype("<f8").view(np.uint8).reshape(rows, 8),
    ]
    left = value_bytes - sum(part.shape[1] for part in event)
    field_bytes = len(_varint(_FIELD_DIGITS)) + _FIELD_DIGITS
    fields = max(0, left // field_bytes)
    while _array_bytes(fields, field_bytes) + 1 > left and fields:  # the note's length takes a byte at least
        fields -= 1
    note = left - _array_bytes(fields, field_bytes) - 1
    if not 0 <= note < 2**6:  # whose length takes exactly a byte
        raise ValueError(f"an Avro event cannot have {value_bytes} bytes")
    if fields:
        event += [_constant(rows, _varint(fields)), *(_strings(random, rows, _FIELD_DIGITS) for _ in range(fields))]
    event += [_constant(rows, _varint(0)), _strings(random, rows, note)]
    return np.hstack(event)


def _array_bytes(count: int, item_bytes: int) -> int:
    """Returns the bytes of an Avro array: a block with its count, if there are items, and an empty block."""
    return (len(_varint(count)) + count * item_bytes if count else 0) + len(_varint(0))


def _varint(number: int) -> bytes:
    """Returns a number that is not negative as Avro writes it: zigzag, then 7 bits a byte, the lowest first."""
    left, encoded = number * 2, bytearray()
    while left > 127:
        encoded.append(left & 127 | 128)
        left >>= 7
    return bytes(encoded) + bytes([left])


def _longs(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    shifted = (numbers[:, None] * 2) >> (7 * np.arange(_LONG_BYTES))
    encoded = (shifted & 127).astype(np.uint8)
    encoded[:, :-1] |= 128
    return encoded


def _strings(random: Random, rows: int, digits: int) -> NDArray[np.uint8]:
    return np.hstack([_constant(rows, _varint(digits)), _digits(random, rows, digits)])


def _constant(rows: int, value: bytes) -> NDArray[np.uint8]:
    return np.tile(np.frombuffer(value, np.uint8), (rows, 1))


def _digits(random: Random, rows: int, width: int) -> NDArray[np.uint8]:
    return random.integers(ord("0"), ord("9") + 1, (rows, width), dtype=np.uint8)


def _headers(rows: int, random: Random) -> pa.Array:
    """Returns two headers for each row: one that differs, and one that does not."""
    both = np.empty((rows, 2), dtype=object)
    both[:, 0] = _column(_digits(random, rows, _TRACE_BYTES), pa.binary()).to_numpy(zero_copy_only=False)
    both[:, 1] = _SOURCE
    keys = pa.array(list(HEADERS) * rows, pa.string())
    pairs = pa.StructArray.from_arrays([keys, pa.array(both.ravel(), pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * rows + 1, 2, dtype=np.int32)), pairs)


def _column(rows: NDArray[np.uint8], type_: pa.DataType) -> pa.Array:
    """Returns each line of a matrix as one string or binary value."""
    offsets = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.Array.from_buffers(type_, len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))])


VALUES: Mapping[Format, Callable[[int, int, Random], NDArray[np.uint8]]] = {Format.JSON: json_values, Format.AVRO: avro_values}
TYPES: Mapping[Format, pa.DataType] = {Format.JSON: pa.string(), Format.AVRO: pa.binary()}
