"""Avro's own library for Java reads what was written by column, and writes the same bytes."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.formats.avro.random_columns import Sample, tables
from tests.formats.avro.test_columns import encoded
from tests.kafka.java import java

PROGRAM = Path(__file__).parent / "golden" / "ReadAvro.java"
# PySpark has the library and what it needs.
JARS = Path(pyspark.__file__).parent / "jars"

pytestmark = pytest.mark.java


def as_java(values: list[tuple[Any, bytes]]) -> list[tuple[bytes, str]]:
    """Returns for each schema and value the bytes that Java writes, and its text. It takes 2 seconds."""
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java(), *options, "-cp", str(JARS / "*"), str(PROGRAM)]
    schemas = [schema for schema, _ in values]
    words = [
        "-" if number and schema is schemas[number - 1] else b64encode(json.dumps(schema).encode()).decode()
        for number, schema in enumerate(schemas)
    ]
    given = "".join(f"{word} ={b64encode(data).decode()}\n" for word, (_, data) in zip(words, values, strict=True))
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    pairs = (line.split(" ") for line in done.stdout.splitlines())
    return [(b64decode(data.removeprefix("=")), b64decode(text).decode()) for data, text in pairs]


# Java starts once for each example, so none is made smaller.
@pytest.mark.whole("17 s; fastavro reads the same rows in test_columns.py")
@settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(tables(depth=2), min_size=1, max_size=6))
def test_java_writes_the_same_bytes(many: list[tuple[Sample, list[Any], pa.Array]]) -> None:
    written = [(sample.schema, data) for sample, _, column in many for data in encoded(sample.schema, column) if data is not None]

    assert [data for data, _ in as_java(written)] == [data for _, data in written]


@pytest.mark.whole("starts Java; fastavro reads the logical types in test_columns.py")
def test_java_knows_each_logical_type() -> None:
    nanos = pa.array([1_767_323_045_123_456_789], pa.int64())
    uuid = {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    decimal = {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 30, "scale": 2}
    columns: list[tuple[Any, pa.Array, str]] = [
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            nanos.cast(pa.timestamp("ns", "UTC")),
            "2026-01-02T03:04:05.123456789Z",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-nanos"},
            nanos.cast(pa.timestamp("ns")),
            "2026-01-02T03:04:05.123456789",
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            nanos.cast(pa.timestamp("ns", "UTC")),
            "2026-01-02T03:04:05.123456Z",
        ),
        ({"type": "int", "logicalType": "date"}, pa.array([-1], pa.int32()).cast(pa.date32()), "1969-12-31"),
        (uuid, pa.array(["01234567-89ab-cdef-0123-456789abcdef"]), "01234567-89ab-cdef-0123-456789abcdef"),
        (decimal, pa.array([-12345], pa.int64()), "-12345.00"),
    ]

    found = as_java([(schema, encoded(schema, column)[0] or b"") for schema, column, _ in columns])

    assert [text for _, text in found] == [text for _, _, text in columns]
