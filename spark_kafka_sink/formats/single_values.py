"""Shared parts of encoding a single Python value."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from spark_kafka_sink.errors import SerializationError

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)  # timestamps without a zone count from it
DAY_ONE: Final = datetime.date(1970, 1, 1).toordinal()
MICROSECOND: Final = datetime.timedelta(microseconds=1)


class BadValueError(Exception):
    """A value that the schema cannot hold."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem, path)
        self.problem, self.path = problem, path

    def inside(self, step: str) -> BadValueError:
        """Returns the same error as seen from the value around this one."""
        return BadValueError(self.problem, step + self.path)


def refused(value: object, expected: str) -> BadValueError:
    """Returns the error for a value of another class. It does not show the value, which may be secret."""
    if value is None:
        return BadValueError("is None, and the schema does not allow null")
    return BadValueError(f"a value of type {type(value).__name__} is not supported, must be {expected}")


def whole_value(encode: Callable[[], bytes]) -> bytes:
    """Returns what `encode` returns. Raises SerializationError for its BadValueError."""
    try:
        return encode()
    except BadValueError as bad:
        path = bad.path.lstrip(".")
        raise SerializationError(f"{path}: {bad.problem}" if path else bad.problem, path=path) from None
    except RecursionError:
        raise SerializationError("the value is nested too deeply, or contains itself", path="") from None


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Returns the fields of a dict, a named tuple or a Row by name; None for other values."""
    names = getattr(value, "__fields__", None) or getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None:
        return dict(zip(names, value, strict=True))
    return value if isinstance(value, Mapping) else None


def check_names(value: Mapping[Any, Any], fields: Iterable[Any], schema: object) -> None:
    """Raises BadValueError for a field that the schema does not have."""
    known = {field.name for field in fields}
    extra = next((name for name in value if name not in known), None)
    if extra is not None:
        raise BadValueError(f"{schema} has no such field", f".{extra}")


def boolean(value: Any) -> bytes:
    if not isinstance(value, bool | np.bool_):
        raise refused(value, "bool")
    return b"\1" if value else b"\0"


def floating(value: Any, name: str) -> bytes:
    """name: float or double."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise refused(value, "float")
    code = "<f" if name == "float" else "<d"
    try:
        data = struct.pack(code, float(value))
    except OverflowError:
        raise BadValueError(f"the number is out of range for {name}") from None
    if isinstance(value, int | np.integer) and int(*struct.unpack(code, data)) != int(value):
        raise BadValueError(f"a whole number has more digits than {name} can hold")
    return data


def blob(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise refused(value, "bytes")
    return bytes(value)


def utf8(value: Any) -> bytes:
    if not isinstance(value, str):
        raise refused(value, "str")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise BadValueError(f"text with a lone surrogate at {error.start} cannot be encoded as UTF-8") from None
