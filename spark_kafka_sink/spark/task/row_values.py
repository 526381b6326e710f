"""The Python values of Rows as Arrow columns, and which of them a record cannot have."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.options.option import INT32_MAX, INT64_MAX
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, array_of_numbers, bitmap
from spark_kafka_sink.records.columns import NO_PARTITION, NO_TIMESTAMP

Values = Sequence[Any]

CONVERSION_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What `array_of_values` raises for values of a wrong type, and for those that `problems_of` names."""

# The calendar repeats every 400 years, to the day of the week. Sentinels are often in the first year or in the last.
_EDGES: Final = {datetime.MINYEAR: 400, datetime.MAXYEAR: -400}
_MS_OF_400_YEARS: Final = 146_097 * 86_400_000

# Text of an int with more than 4,300 digits raises ValueError.
_LARGEST: Final = 1 << 1000


def array_of_values(name: str, values: Values) -> pa.Array:
    """Returns the values of a record's column as Arrow column. Raises CONVERSION_ERRORS."""
    return _CONVERTERS[name](values)


def are(values: Values, *kinds: type) -> bool:
    """Returns whether each value is None or an instance of exactly one of these classes."""
    return set(map(type, values)) <= {*kinds, NoneType}


# Values of the expected types become columns without `pa.array`, which imports pandas (records/arrow_arrays.py). Arrow converts
# or refuses other values.

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


def _text(values: Values) -> pa.Array:
    return _array_of_bytes(values, pa.string()) if are(values, str) else pa.array(values, type=pa.string())


def _bytes(values: Values) -> pa.Array:
    return _array_of_bytes(values) if are(values, str, bytes, bytearray) else pa.array(values, type=pa.binary())


def _headers(values: Values) -> pa.Array:
    pairs = _pairs(values)
    keys, contents = [pair[0] for pair in pairs or ()], [pair[1] for pair in pairs or ()]
    if pairs is None or None in keys or not (are(keys, str) and are(contents, bytes, bytearray)):
        return pa.array(values, type=pa.list_(_HEADER))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(own or ()) for own in values], out=offsets[1:])
    elements = pa.StructArray.from_arrays([_array_of_bytes(keys, pa.string()), _array_of_bytes(contents)], fields=list(_HEADER))
    present = bitmap(np.array([own is not None for own in values], np.bool_))
    return pa.Array.from_buffers(pa.list_(_HEADER), len(values), [present, pa.py_buffer(offsets)], children=[elements])


def _pairs(values: Values) -> list[tuple[object, object]] | None:
    """Returns all headers of all rows, or None if a row holds anything but a list of pairs."""
    if not are(values, list, tuple):
        return None
    pairs = [pair for own in values for pair in own or ()]
    return pairs if all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs) else None


def _whole_numbers(values: Values) -> pa.Array:
    if are(values, int) and all(value is None or -(2**31) <= value < 2**31 for value in values):
        return _array_of_numbers(values, np.int32)
    # Arrow would convert 1.5 to 1.
    for value in values:
        if isinstance(value, float):
            raise TypeError(f"{value} is no whole number")
    return pa.array(values, type=pa.int32())


def _milliseconds(values: Values) -> pa.Array:
    return _array_of_numbers([_epoch_ms(value) for value in values], np.int64)


def _array_of_bytes(values: Values, kind: pa.DataType | None = None) -> pa.Array:
    return array_of_bytes([value.encode() if isinstance(value, str) else value for value in values], kind)


def _array_of_numbers(values: Sequence[int | None], dtype: type[np.integer[Any]]) -> pa.Array:
    present = np.array([value is not None for value in values], np.bool_)
    return array_of_numbers(np.array([value or 0 for value in values], dtype), present)


def _datetime_ms(value: datetime.datetime) -> int:
    if value.tzinfo is None and value.year in _EDGES:  # datetime.timestamp needs the days around a local time
        years = _EDGES[value.year]
        return _datetime_ms(value.replace(year=value.year + years)) - years // 400 * _MS_OF_400_YEARS
    return int(value.replace(microsecond=0).timestamp()) * 1000 + value.microsecond // 1000


def _epoch_ms(value: object) -> int | None:
    """Returns milliseconds, rounded down. A float of seconds would lose the last millisecond."""
    if isinstance(value, datetime.datetime):
        return _datetime_ms(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{value!r} is neither a datetime nor an int")


_CONVERTERS: Mapping[str, Callable[[Values], pa.Array]] = {
    "key": _bytes,
    "value": _bytes,
    "headers": _headers,
    "topic": _text,
    "partition": _whole_numbers,
    "timestamp": _milliseconds,
}

COLUMNS_OF_ROWS: Final = tuple(_CONVERTERS)
"""The columns of a record, in the order of our batches."""


# Values that a record cannot have. Only columns that could not be converted come here.


def problems_of(name: str, values: Values) -> dict[int, str]:
    """Returns why single values cannot be sent, by row. Values of a wrong type are not among them: they concern the column."""
    problem = _PROBLEMS[name]
    return {row: found for row, value in enumerate(values) if (found := problem(value)) is not None}


def valid_part(name: str, value: Any) -> Any:
    """Returns what is left of a value that `problems_of` names: its headers, of which bad ones lack a key, or None."""
    if name != "headers":
        return None
    return [(None, None) if any(map(_text_problem, _texts(header))) else header for header in value]


def given_numbers(name: str, values: Values) -> NDArray[Any]:
    """Returns partitions, or timestamps in ms, as Rows hold them. They are Python ints, because some fit no other type."""
    null = NO_PARTITION if name == "partition" else NO_TIMESTAMP
    return np.array([_given_number(name, value, null) for value in values], object)


def _given_number(name: str, value: Any, null: int) -> int:
    try:
        number = int(value) if name == "partition" and value is not None else _epoch_ms(value)
    except (ValueError, OverflowError):  # pandas.NaT
        return null
    return null if number is None else _limited(number)


def text_of(value: object) -> str | None:
    """Returns a topic as text that UTF-8 can hold."""
    if value is None:
        return None
    data = value if isinstance(value, bytes | bytearray) else str(value).encode(errors="backslashreplace")
    return data.decode(errors="backslashreplace")


def _text_problem(value: object) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return f"its text cannot be encoded as UTF-8 ({error})"
    return None


def _texts(header: object) -> Iterator[object]:
    return iter(header.values() if isinstance(header, Mapping) else header if isinstance(header, list | tuple) else ())


def _headers_problem(value: object) -> str | None:
    found = (_text_problem(text) for header in (value if isinstance(value, list | tuple) else ()) for text in _texts(header))
    return next(filter(None, found), None)


def _partition_problem(value: object) -> str | None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or -INT32_MAX - 1 <= value <= INT32_MAX:
        return None
    return f"{_limited(int(value))} does not fit in 32 bits"


def _timestamp_problem(value: object) -> str | None:
    try:
        number = _epoch_ms(value)
    except TypeError:
        return None
    except (ValueError, OverflowError) as error:
        return f"{value} is not a time ({error})"
    return None if number is None or -INT64_MAX - 1 <= number <= INT64_MAX else f"{_limited(number)} ms does not fit in 64 bits"


def _limited(number: int) -> int:
    return max(-_LARGEST, min(number, _LARGEST))


_PROBLEMS: Mapping[str, Callable[[Any], str | None]] = {
    "key": _text_problem,
    "value": _text_problem,
    "headers": _headers_problem,
    "topic": _text_problem,
    "partition": _partition_problem,
    "timestamp": _timestamp_problem,
}
