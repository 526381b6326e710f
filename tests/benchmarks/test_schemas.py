"""The contenders of the Avro benchmarks encode the same rows."""

from __future__ import annotations

import pytest

from benchmarks.avro_records import RECORDS
from benchmarks.results import FASTAVRO, PYRUHVRO, PYRUHVRO_PREFIXED, SINK
from benchmarks.schemas import PREFIX, encoders

ROWS = 50


@pytest.mark.parametrize("name", RECORDS)
def test_all_contenders_encode_the_same_rows(name: str) -> None:
    encode = encoders(name, ROWS)
    written = list(encode[FASTAVRO]())

    assert [one.as_py() for one in encode[PYRUHVRO]()] == written
    for contender in (SINK, PYRUHVRO_PREFIXED):
        assert [one.as_py() for one in encode[contender]()] == [PREFIX + one for one in written]
