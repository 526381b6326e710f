from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.columns import NO_TIMESTAMP
from spark_kafka_sink.records.timestamps import PER_SECOND, in_ms, in_other_unit, likely_unit, time_problem

UNITS = st.sampled_from(sorted(PER_SECOND))


@given(UNITS, st.integers(978_307_200, 4_133_980_799))
def test_a_time_of_2001_to_2100_has_one_unit(unit: str, seconds: int) -> None:
    number = seconds * PER_SECOND[unit]
    assert likely_unit(number) == unit
    times = np.array([NO_TIMESTAMP, 5, number, 2**62], np.int64)
    wrong = in_other_unit(times)
    assert (None if wrong is None else wrong.tolist()) == (None if unit == "ms" else [False, False, True, False])
    assert in_ms(times, unit).tolist()[::2] == [NO_TIMESTAMP, seconds * 1000]


def test_times_of_no_year_are_taken_as_ms() -> None:
    assert in_other_unit(np.array([], np.int64)) is None
    assert in_other_unit(np.array([0, 978_307_199, 4_133_980_800, 2**63 - 1], np.int64)) is None


def test_seconds_that_64_bits_cannot_hold_as_ms_stay_in_range() -> None:
    assert in_ms(np.array([2**63 - 1, -(2**63)], np.int64), "s").tolist() == [9223372036854775000, -9223372036854775000]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-5, "-5 ms is before 1970, and Kafka timestamps start in 1970"),
        (2**70, "1180591620717411303424 ms does not fit in 64 bits"),
        (
            1_700_000_000,
            "1700000000 is in the year 1970 as milliseconds and 2023-11-14T22:13:20Z as seconds; set timestamp.unit=s, or"
            " timestamp.unit=ms if these are milliseconds",
        ),
    ],
)
def test_a_problem_names_the_unit(number: int, text: str) -> None:
    assert time_problem(number) == text
