from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.arrow_arrays import (
    array_of_bytes,
    array_of_numbers,
    filled_numbers,
    numbers,
    scalar_of_bytes,
    text_scalar,
    validity,
)
from tests.every import every
from tests.examples import examples

KINDS = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]


@settings(max_examples=examples(100))
@given(st.lists(st.none() | st.text(max_size=5).map(str.encode)), st.sampled_from(KINDS))
def test_bytes_become_the_column_that_pyarrow_makes_of_them(values: list[bytes | None], kind: pa.DataType) -> None:
    found = array_of_bytes(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))


@pytest.mark.parametrize("value", ["text", 7, np.arange(3, dtype=np.int32).data])
def test_what_is_no_bytes_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        array_of_bytes([b"1", value])  # type: ignore[list-item]


@every("dtype", [np.bool_, np.int8, np.int32, np.int64, np.float64])
@every("step", [1, 2])
def test_numbers_become_the_column_that_pyarrow_makes_of_them(dtype: type[np.generic], step: int) -> None:
    values = (np.arange(20) % 3).astype(dtype)[::step]
    assert array_of_numbers(values).equals(pa.array(values))


@settings(max_examples=examples(100))
@given(st.lists(st.none() | st.integers(-5, 5), max_size=20), st.integers(0, 9))
def test_numbers_come_out_of_any_slice(values: list[int | None], start: int) -> None:
    column = pa.array(values, pa.int64()).slice(start)
    rows = values[start:]
    assert filled_numbers(column, np.int64, -9).tolist() == [-9 if value is None else value for value in rows]
    assert validity(column).tolist() == [value is not None for value in rows]
    present = [value for value in rows if value is not None]
    assert numbers(column, np.int64)[validity(column)].tolist() == present


def test_no_row_of_a_null_column_is_valid() -> None:
    assert validity(pa.nulls(2)).tolist() == [False, False]


def test_scalars_are_those_of_pyarrow() -> None:
    assert text_scalar("ä").equals(pa.scalar("ä"))
    assert scalar_of_bytes(None, pa.string()).equals(pa.scalar(None, pa.string()))
    assert scalar_of_bytes(b"", pa.large_binary()).equals(pa.scalar(b"", pa.large_binary()))
