"""The contenders of the Protobuf benchmark write the same rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from benchmarks.avro_records import RECORDS
from benchmarks.protobuf import PREFIX, PTARS, PTARS_PREFIXED, SINK, UPB, UPB_ALONE, writers

ROWS = 50


@pytest.mark.parametrize("name", RECORDS)
def test_all_contenders_write_the_same_rows(name: str) -> None:
    found = {contender: write() for contender, write in writers(name, ROWS).items()}
    listed: dict[str, Any] = {
        contender: one.to_pylist() if isinstance(one, pa.Array) else one for contender, one in found.items()
    }

    assert listed[UPB_ALONE] == listed[UPB]
    assert listed[PTARS] == listed[UPB]
    for contender in (SINK, PTARS_PREFIXED):
        assert listed[contender] == [PREFIX + one for one in listed[UPB]]
