"""Formats of text: which ones are checked, for whole columns and for single values alike.

Libraries differ in what they accept, and jsonschema checks most formats only if optional libraries are installed. So the
expressions here are used for both.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.formats.json_schema.json_kernels import Rows, matches
from spark_kafka_sink.records.arrow_arrays import filled_numbers

_OF_JSON_SCHEMA: Final = frozenset(
    {"color", "date", "date-time", "duration", "email", "host-name", "hostname", "idn-email", "idn-hostname", "ip-address"}
    | {"ipv4", "ipv6", "iri", "iri-reference", "json-pointer", "phone", "regex", "relative-json-pointer", "style", "time"}
    | {"uri", "uri-reference", "uri-template", "utc-millisec", "uuid"}
)
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_DATE: Final = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ATOM: Final = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EXPRESSIONS: Final = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "email": rf"^{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*$",
    "ipv4": rf"^{_BYTE}(?:\.{_BYTE}){{3}}$",
    "time": f"^{_TIME}$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
"""The formats that text is checked for, as expressions of RE2 and of Python. Some are stricter than the format, as validators
differ.
"""
_COMPILED: Final[Mapping[str, re.Pattern[str]]] = {name: re.compile(one, re.ASCII) for name, one in _EXPRESSIONS.items()}


def is_known(name: str) -> bool:
    """Returns whether JSON Schema defines a format. Validators ignore the others."""
    return name in _OF_JSON_SCHEMA


def is_supported(name: str) -> bool:
    """Returns whether text can be checked for a format."""
    return name in _EXPRESSIONS


def supported() -> tuple[str, ...]:
    """Returns the names of the formats that text can be checked for."""
    return tuple(_EXPRESSIONS)


def text_has_format(name: str, text: str) -> bool:
    """Returns whether a text has a supported format, as `has_format` does for columns."""
    if _COMPILED[name].fullmatch(text) is None:
        return False
    if name.startswith("date"):
        try:
            datetime.date.fromisoformat(text[:10])
        except ValueError:
            return False
    return True


def has_format(name: str) -> Rows:
    """Returns whether each row's text has one of those formats."""
    matching = matches(_EXPRESSIONS[name])
    if not name.startswith("date"):
        return matching
    return lambda column: pc.and_(matching(column), _is_day(column, matching(column)))


def _is_day(column: pa.Array, matching: pa.Array) -> pa.Array:
    """Returns whether the month of each row that begins with a date has its day."""
    found = pc.if_else(pc.fill_null(matching, False), column.cast(pa.string()), pa.scalar("2000-01-01"))
    year, month, day = (
        filled_numbers(pc.utf8_slice_codeunits(found, *place).cast(pa.int32()), np.int32, 1)
        for place in ((0, 4), (5, 7), (8, 10))
    )
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[month] + ((month == 2) & is_leap)
    return pa.array((day <= days) & (year > 0))
