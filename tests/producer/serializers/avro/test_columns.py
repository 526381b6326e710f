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

from spark_kafka_sink.producer.serializers.avro.avro_fit import fit
from spark_kafka_sink.producer.serializers.avro.avro_schema import parse
from tests.producer.serializers.avro.random_columns import PLAIN, Sample, hiding, tables

PREFIX = b"\0\0\0\1\2"
# As many examples as the tier has histories.
many_examples = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def read(schema: Any, data: bytes) -> Any:
    """Reads a value with fastavro, which must take all bytes."""
    stream = io.BytesIO(data)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), None)
    assert stream.read() == b""
    return value


def encoded(schema: Any, column: pa.Array, prefix: bytes = b"") -> list[bytes | None]:
    found: list[bytes | None] = fit(parse(json.dumps(schema)), column.type).encode(column, prefix).to_pylist()
    return found


@many_examples
@given(tables())
def test_fastavro_reads_what_was_written(table: tuple[Sample, list[Any], pa.Array]) -> None:
    sample, rows, column = table

    found = encoded(sample.schema, column, PREFIX)

    assert [None if data is None else data[:5] for data in found] == [None if row is None else PREFIX for row in rows]
    assert [None if data is None else read(sample.schema, data[5:]) for data in found] == [
        None if row is None else sample.read(row) for row in rows
    ]


@many_examples
@given(st.data())
def test_fastavro_reads_each_plain_type(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from([one for one in PLAIN if one.schema != "null"]))
    rows = data.draw(st.lists(sample.values, min_size=1, max_size=30))

    found = encoded(sample.schema, sample.array(rows))

    assert [read(sample.schema, one) for one in found if one is not None] == [sample.read(row) for row in rows]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(16), pa.uuid()])
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
