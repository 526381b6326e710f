"""What is written by column is what fastavro reads, row by row, for any schema and any column that fits it."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.formats import nodes
from spark_kafka_sink.formats.avro.avro_fit import fit
from spark_kafka_sink.formats.avro.avro_schema import parse
from spark_kafka_sink.records import concat
from tests.every import every
from tests.examples import examples
from tests.formats.avro.random_columns import PLAIN, Sample, hiding, tables

PREFIX = b"\0\0\0\1\2"
SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def read(schema: Any, data: bytes) -> Any:
    """Reads a value with fastavro, which must take all bytes."""
    stream = io.BytesIO(data)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), None)
    assert stream.read() == b""
    return value


def encoded(schema: Any, column: pa.Array, prefix: bytes = b"") -> list[bytes | None]:
    found: list[bytes | None] = fit(parse(json.dumps(schema)), column.type).encode(column, prefix).to_pylist()
    return found


@settings(max_examples=examples(20), deadline=None, suppress_health_check=SLOW_TO_DRAW)
@given(tables(depth=2))
def test_fastavro_reads_what_was_written(table: tuple[Sample, list[Any], pa.Array]) -> None:
    check_read(*table)


@pytest.mark.whole("24 s; the same with two levels is in make test")
@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW_TO_DRAW)
@given(tables(depth=3))
def test_fastavro_reads_what_was_written_with_three_levels(table: tuple[Sample, list[Any], pa.Array]) -> None:
    check_read(*table)


def check_read(sample: Sample, rows: list[Any], column: pa.Array) -> None:
    found = encoded(sample.schema, column, PREFIX)

    assert [None if data is None else data[:5] for data in found] == [None if row is None else PREFIX for row in rows]
    assert [None if data is None else read(sample.schema, data[5:]) for data in found] == [
        None if row is None else sample.read(row) for row in rows
    ]


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_fastavro_reads_each_plain_type(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from([one for one in PLAIN if one.schema != "null"]))
    rows = data.draw(st.lists(sample.values, min_size=1, max_size=30))

    found = encoded(sample.schema, sample.array(rows))

    assert [read(sample.schema, one) for one in found if one is not None] == [sample.read(row) for row in rows]


def test_a_null_may_be_among_the_values_of_a_dictionary() -> None:
    indices = pa.array([1, 0, None], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["a", None]))
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}

    assert encoded("string", column) == [None, b"\2a", None]
    assert encoded(schema, pa.StructArray.from_arrays([column], ["a"])) == [b"\0", b"\2\2a", b"\0"]


def test_lists_of_nulls_in_a_map_behind_a_null() -> None:
    """Arrow's cast of such a map to a list has wrong offsets."""
    rows = [None, [("a", [None] * 2)], None, [("b", [None]), ("c", [])]]
    schema = {"type": "map", "values": {"type": "array", "items": "null"}}
    column = pa.array(rows, pa.map_(pa.string(), pa.list_(pa.null()))).slice(1)

    found = [None if row is None else read(schema, row) for row in encoded(schema, column)]

    assert found == [None if row is None else dict(row) for row in rows[1:]]


def test_above_2_gib_columns_become_large(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "array", "items": {"type": "array", "items": "string"}}
    rows = [[["abc" * 5] * 3, []], [], [["d"]]] * 10_000
    column = pa.array(rows, pa.list_(pa.list_(pa.string())))
    expected = encoded(schema, column)

    for module in (concat, nodes):  # memory for 2 GiB is not everywhere
        monkeypatch.setattr(module, "INT32_MAX", 100)
    found = fit(parse(json.dumps(schema)), column.type).encode(column)

    assert found.type == pa.large_binary()
    assert found.to_pylist() == expected


@every("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(16), pa.uuid()])
def test_a_uuid_in_a_fixed_is_its_16_bytes(kind: pa.DataType) -> None:
    """fastavro does not support it."""
    uuids = [UUID(int=0), UUID("0123456789abcdef0123456789ABCDEF"), UUID(int=2**128 - 1)]
    is_text = "string" in str(kind)
    rows = [str(uuid).upper() if is_text else uuid.bytes for uuid in uuids]
    column = hiding(pa.array(["0" * 36 if is_text else bytes(16), *rows, rows[0]], kind), [True, True, True, True, False]).slice(
        1
    )
    uuid = {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", uuid]}]}

    found = encoded(schema, pa.StructArray.from_arrays([column], ["a"]))

    assert found == [*(b"\2" + one.bytes for one in uuids), b"\0"]
