"""The bytes of keys and values in dead letters: the row's own, or a text of what is not bytes. Nothing here raises.

It handles bad rows only, so it may look at each of them in Python.
"""

from __future__ import annotations

import base64
import json
import math
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from spark_kafka_sink.producer.serializers.arrays import BadRowError
from spark_kafka_sink.producer.serializers.json_serializer import json_texts, why_not_json
from spark_kafka_sink.records.arrow_arrays import byte_column, holds_bytes


class Form(StrEnum):
    """How the bytes of a key or value were made.

    OWN: they are the row's own, as the column has them. TEXT: the value has no JSON, such as NaN or text that is not UTF-8. The
    text resembles JSON. SERIALIZED: the serializer made them. OMITTED: they were left out of a letter that would be too large.
    """

    OWN = ""
    JSON = "json"
    TEXT = "text"
    SERIALIZED = "serialized"
    OMITTED = "omitted"


QUOTE: Final = '"'

Part = tuple[bytes | None, Form]


def parts_of(column: pa.Array | None, rows: int) -> list[Part]:
    """Returns the bytes of each row of a key or value column."""
    if column is None:
        return [(None, Form.OWN)] * rows
    if holds_bytes(column.type):
        return [(data, Form.OWN) for data in byte_column(column).to_pylist()]
    found = _json(column)
    if found is not None:
        return found
    return [(_json(column.slice(row, 1)) or [_lenient(column, row)])[0] for row in range(rows)]


def part_of_value(value: object) -> Part:
    """Returns the bytes of a key or value of a Row."""
    if value is None or isinstance(value, bytes):
        return value, Form.OWN
    if isinstance(value, bytearray | memoryview):
        return bytes(value), Form.OWN
    if isinstance(value, str):
        data = value.encode(errors="backslashreplace")
        return data, Form.OWN if data.decode() == value else Form.TEXT
    as_dict = getattr(value, "asDict", None)  # a Row
    try:
        plain = as_dict(recursive=True) if callable(as_dict) else value
        return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode(), Form.JSON
    except Exception:  # a class of the program may raise anything
        return _repr(value), Form.TEXT


def _repr(value: object) -> bytes:
    try:
        return repr(value).encode(errors="backslashreplace")
    except Exception:
        return f"a {type(value).__name__} without a text".encode()


def _json(column: pa.Array) -> list[Part] | None:
    """Returns the JSON that good rows would have, or None if some row or the type has none."""
    if why_not_json(column.type) is not None:
        return None
    try:
        texts = byte_column(json_texts(column)).to_pylist()
    except (BadRowError, pa.ArrowException, ValueError):
        return None
    return [(text, Form.OWN if text is None else Form.JSON) for text in texts]


def _lenient(column: pa.Array, row: int) -> Part:
    value = column[row]
    if not value.is_valid:
        return None, Form.OWN
    try:
        text = _text(value)
    except Exception:  # of a type that nobody has thought of
        text = f"a {column.type} without a text"
    return text.encode(errors="backslashreplace"), Form.TEXT


def _text(value: pa.Scalar) -> str:
    """Returns a text like JSON of any scalar."""
    if not value.is_valid:
        return "null"
    kind = value.type
    if pa.types.is_struct(kind):
        fields = (f"{_quoted(field.name)}:{_text(value[place])}" for place, field in enumerate(kind))
        return "{" + ",".join(fields) + "}"
    if pa.types.is_map(kind):
        pairs = ((_text(entry[0]), _text(entry[1])) for entry in value.values)  # a key may be there twice
        return "{" + ",".join(f"{key if key[0] == QUOTE else _quoted(key)}:{text}" for key, text in pairs) + "}"
    if isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return "[" + ",".join(map(_text, value.values)) + "]"
    if holds_bytes(kind):
        data = value.as_buffer().to_pybytes()
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return _quoted(data.decode(errors="backslashreplace") if is_text else base64.b64encode(data).decode())
    if pa.types.is_floating(kind):
        return _number_or_text(float(value.as_py()))  # pyarrow 19 returns numpy.float16, which is no float
    return _number_or_text(value.as_py())


def _number_or_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return json.dumps(value) if isinstance(value, int | float) else _quoted(str(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
