"""Decoded values as JSON for people and programs."""

from __future__ import annotations

import datetime
import json
from typing import Any


def as_json(value: Any) -> str:
    """Returns a decoded value as JSON: times in ISO 8601, decimals and UUIDs as text, bytes that are not UTF-8 in hexadecimal."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
