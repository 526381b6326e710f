"""JSON text of one Python value, as json.dumps writes it without spaces, and of what json.dumps does not know."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from typing import Any
from uuid import UUID

import numpy as np

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.serializers.serializer import refused_value
from spark_kafka_sink.producer.serializers.text_encoders import whole_pairs


def json_text(value: Any) -> str:
    """SerializationError for NaN, infinity, keys that are no text, and classes that JSON has nothing for."""
    writer = _OF_CLASS.get(type(value)) or _writer(value)
    return writer(value)


def _writer(value: Any) -> Callable[[Any], str]:
    for kinds, writer in _WRITERS:
        if isinstance(value, kinds):
            return writer
    raise refused_value(value, "what JSON can hold")


def _string(value: str) -> str:
    return encode_basestring(whole_pairs(value, "?"))


def _object(pairs: Mapping[Any, Any]) -> str:
    return "{" + ",".join(f"{_key(key)}:{json_text(value)}" for key, value in pairs.items()) + "}"


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise refused_value(key, "text for a key of JSON")
    return _string(key)


def _sequence(values: Sequence[Any]) -> str:
    """A tuple whose fields have names (Spark's Row, Python's namedtuple) is a struct: fields that are None are left out."""
    names = getattr(values, "__fields__", None) or getattr(values, "_fields", None)
    if names is None:
        return "[" + ",".join(map(json_text, values)) + "]"
    return _object({name: value for name, value in zip(names, values, strict=True) if value is not None})


def _float(value: float) -> str:
    if not isfinite(value):
        raise SerializationError(f"{value}, which JSON cannot hold")
    return repr(float(value))


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise SerializationError(f"{value}, which JSON cannot hold")
    return str(value)


def _datetime(value: datetime.datetime) -> str:
    in_utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return f'"{in_utc.isoformat(timespec="microseconds")}Z"'


def _time(value: datetime.time) -> str:
    return f'"{value.isoformat(timespec="microseconds")}"'


def _blob(value: bytes | bytearray | memoryview) -> str:
    return f'"{base64.b64encode(value).decode()}"'


# The first that fits: bool is an int, datetime a date.
_WRITERS: Sequence[tuple[Any, Callable[[Any], str]]] = (
    (str, _string),
    (type(None), lambda _: "null"),
    ((bool, np.bool_), lambda value: "true" if value else "false"),
    ((int, np.integer), lambda value: str(int(value))),
    (np.float32, lambda value: _float(float(str(value)))),  # the shortest digits, as in a column of float
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

# Most values, found without asking in turn: half the time.
_OF_CLASS: Mapping[type, Callable[[Any], str]] = {
    kind: _writer(example)
    for kind, example in ((str, ""), (int, 0), (float, 0.0), (bool, True), (dict, {}), (list, []), (type(None), None))
}
