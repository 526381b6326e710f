"""Random values of one column's type, drawn a hundred times as fast as Hypothesis does. For a million rows."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

Draw = Callable[[Random], Any]

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 \0\n\"'éßЖ中\u20ac\U0001f600"
_MOST_LETTERS = 15
_MOST_BYTES = 20
_US_PER_DAY = 86_400 * 10**6
_US_PER_UNIT = {"s": 10**6, "ms": 10**3, "us": 1, "millis": 10**3, "micros": 1}
_FLOATS = {pa.float16(): "<e", pa.float32(): "<f", pa.float64(): "<d"}
_START = datetime.datetime(1900, 1, 1)
_SECONDS = 200 * 365 * 86_400


def random_text(random: Random) -> str:
    return "".join(random.choices(_ALPHABET, k=random.randint(0, _MOST_LETTERS)))


def random_value(schema: Any, kind: pa.DataType) -> Draw:
    """Returns the function that draws values of a column of `kind` that a schema without parts can hold."""
    logical: str = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    base: str = schema["type"] if isinstance(schema, dict) else schema
    if logical == "uuid":
        as_bytes = not pa.types.is_string(kind)
        return lambda random: _uuid(random).bytes if as_bytes else str(_uuid(random))
    if pa.types.is_null(kind):
        return lambda _: None
    if pa.types.is_boolean(kind):
        return lambda random: random.random() < 0.5
    if pa.types.is_integer(kind):
        return _whole(kind, 29 if logical == "decimal" else 31 if base == "int" else 63)
    if pa.types.is_floating(kind):
        return _floating(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_temporal(kind):
        return _temporal(kind, logical)
    if pa.types.is_fixed_size_binary(kind) or base == "fixed":
        size = schema["size"] if base == "fixed" else kind.byte_width
        return lambda random: random.randbytes(size)
    if "binary" in str(kind):
        return lambda random: random.randbytes(random.randint(0, _MOST_BYTES))
    if pa.types.is_dictionary(kind):  # which may have few indices
        return lambda random: random.choice(_ALPHABET)
    return random_text


def _uuid(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128))


def _whole(kind: pa.DataType, most_bits: int) -> Draw:
    """Numbers of each size are equally likely."""
    signed = pa.types.is_signed_integer(kind)
    bits = min(kind.bit_width - signed, most_bits)

    def draw(random: Random) -> int:
        number = random.getrandbits(random.randint(0, bits))
        return -number - 1 if signed and random.random() < 0.5 else number

    return draw


def _floating(kind: pa.DataType) -> Draw:
    form = _FLOATS[kind]
    # pyarrow 19 makes halffloats of numpy's values only.
    made: Callable[[float], Any] = np.float16 if kind == pa.float16() else float

    def draw(random: Random) -> Any:
        while True:
            (number,) = struct.unpack(form, random.randbytes(struct.calcsize(form)))
            if math.isfinite(number):
                return made(number)

    return draw


def _decimal(kind: pa.DataType) -> Draw:
    def draw(random: Random) -> Decimal:
        unscaled = random.randrange(10 ** random.randint(0, kind.precision))
        sign = int(unscaled > 0 and random.random() < 0.5)
        return Decimal((sign, tuple(map(int, str(unscaled))), -kind.scale))

    return draw


def _temporal(kind: pa.DataType, logical: str) -> Draw:
    if pa.types.is_date(kind):
        return lambda random: datetime.date.fromordinal(random.randint(1, datetime.date.max.toordinal()))
    if pa.types.is_time(kind):
        step = max(_US_PER_UNIT[kind.unit], _US_PER_UNIT[logical.rpartition("-")[2]])
        return lambda random: _time(random.randrange(0, _US_PER_DAY, step))
    if kind.unit == "ns":
        return lambda random: random.getrandbits(62) * random.choice((-1, 1))
    zone = None if kind.tz is None else datetime.UTC

    def draw(random: Random) -> datetime.datetime:
        gone = datetime.timedelta(seconds=random.randrange(_SECONDS), microseconds=random.randrange(10**6))
        return (_START + gone).replace(tzinfo=zone)

    return draw


def _time(micros: int) -> datetime.time:
    return (datetime.datetime.min + datetime.timedelta(microseconds=micros)).time()
