"""The contenders of the Avro benchmarks encode the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.avro_records import RECORDS, rows_of
from benchmarks.avro_under_spark import FILES, write_files
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


def test_half_of_the_fields_are_nullable_and_have_nulls() -> None:
    columns = rows_of("avro-20", ROWS).flatten()

    assert [column.null_count > 0 for column in columns] == [False] * 10 + [True] * 10


def test_files_hold_a_key_and_the_fields(tmp_path: Path) -> None:
    files = write_files("avro-5", 10 * FILES, tmp_path)

    tables = [pq.read_table(file) for file in files]

    assert [table.num_rows for table in tables] == [10] * FILES
    assert tables[0].column_names == ["key", *(field.name for field in rows_of("avro-5", 10).type)]
