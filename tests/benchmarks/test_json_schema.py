"""The contenders of the benchmark of JSON Schema write the same rows."""

from __future__ import annotations

import json
from contextlib import ExitStack

from benchmarks.json_schema import CONFLUENT, SINK, writers
from tests.registry.stand_in import StandIn

ROWS = 20


def test_all_contenders_write_the_same_rows() -> None:
    with ExitStack() as stack:
        registry = stack.enter_context(StandIn())
        write = writers(ROWS, registry.url, stack)
        rows = {name: [getattr(row, "as_py", lambda row=row: row)() for row in one()] for name, one in write.items()}
    for found in rows.values():
        assert [row[:5] for row in found] == [b"\0\0\0\0\1"] * ROWS
        assert [json.loads(row[5:]) for row in found] == [json.loads(row[5:]) for row in rows[SINK]]
    assert any(b'"note"' not in row for row in rows[CONFLUENT])
