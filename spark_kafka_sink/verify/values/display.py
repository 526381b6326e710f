"""Decoded values as JSON for people and programs."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.verify.values.json_values import JsonNumber


def plain(value: Any) -> Any:
    """Returns a decoded value as objects, lists and scalars of JSON.

    Times are texts in ISO 8601, decimals and UUIDs are texts, and so are NaN and infinity. Bytes are text if they are UTF-8, else
    hexadecimal. Numbers of JSON keep their digits.

    Raises:
        ValueError: a message of Protobuf has no JSON, such as a Timestamp after the year 9999.
    """
    if value is None or isinstance(value, bool | int | str | JsonNumber):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import Error, MessageToDict

        try:
            return plain(MessageToDict(value, preserving_proto_field_name=True))
        except Error as error:
            raise ValueError(str(error)) from None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def as_json(value: Any, *, ascii_only: bool = False) -> str:
    """Returns a value of `plain` as JSON. Python's encoder would make floats or texts of numbers with more digits."""
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, dict):
        fields = (f"{_text(name, ascii_only)}: {as_json(one, ascii_only=ascii_only)}" for name, one in value.items())
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return f"[{', '.join(as_json(one, ascii_only=ascii_only) for one in value)}]"
    return _text(value, ascii_only)


def _text(value: Any, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)
