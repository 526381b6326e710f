"""Timestamps of records: their units, and numbers that are no time in milliseconds.

A number of the years 2001 to 2100 in one unit is a time of those years in no other unit. So the unit of a wrong number is known.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.options.option import INT64_MAX
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP

UNITS: Final[Mapping[str, str]] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_YEAR_MS: Final = 31_556_952_000
_FIRST_S, _END_S = (int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp()) for year in (2001, 2101))
_OTHERS: Final = [(_FIRST_S * factor, _END_S * factor) for unit, factor in PER_SECOND.items() if unit != "ms"]


def likely_unit(number: int) -> str | None:
    """Returns the unit in which a number is a time of the years 2001 to 2100, or None."""
    return next((unit for unit, factor in PER_SECOND.items() if _FIRST_S * factor <= number < _END_S * factor), None)


def in_ms(times: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Returns times in milliseconds, rounded down. NO_TIMESTAMP stays. Times that 64 bits cannot hold become the last one."""
    if unit == "ms":
        return times
    if unit == "s":
        largest = INT64_MAX // 1000
        return np.where(times == NO_TIMESTAMP, times, np.clip(times, -largest, largest) * 1000)
    return times // (PER_SECOND[unit] // 1000)


def in_other_unit(times: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Returns which times in ms are of the years 2001 to 2100 in another unit only, or None if none is.

    It takes one pass for the smallest and one for the largest if all are of these years in ms.
    """
    low, high = int(times.min(initial=INT64_MAX)), int(times.max(initial=0))
    if low >= _FIRST_S * 1000 and high < _END_S * 1000:
        return None
    found = [(times >= first) & (times < end) for first, end in _OTHERS if low < end and high >= first]
    return np.logical_or.reduce(found) if np.any(found) else None


def in_both_units(number: int) -> str | None:
    """Returns what a number of ms is as a time in the unit in which it is likely one; None if that is ms."""
    unit = likely_unit(number)
    if unit in ("ms", None):
        return None
    time = datetime.datetime.fromtimestamp(number // PER_SECOND[unit], datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{number} is in the year {1970 + number // _YEAR_MS} as milliseconds and {time} as {UNITS[unit]}"


def time_problem(number: int) -> str:
    """Returns why a number of ms is no time that Kafka has, or is one in another unit, and what to do."""
    if number < 0:
        return f"{number} ms is before 1970, and Kafka timestamps start in 1970"
    if number > INT64_MAX:
        return f"{number} ms does not fit in 64 bits"
    return f"{in_both_units(number)}; set timestamp.unit={likely_unit(number)}, or timestamp.unit=ms if these are milliseconds"
