"""Rows of random schemas, written by column, are read back equal by fastavro, and written alike by Java's Avro and pyruhvro.

Two witnesses that agree on the bytes of a value have read the same value. fastavro's is compared with the row itself.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

import fastavro
import pyruhvro
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.formats.avro.random_columns import Names, Sample, column_of, records
from tests.formats.avro.test_columns import encoded
from tests.formats.avro.test_java import as_java

SCHEMAS, ROWS_OF_EACH = 200, 5_000
FEW_SCHEMAS, FEW_ROWS = 10, 50
DRAWN_FOR_ONE = 3  # Hypothesis draws many that are alike
NAME = re.compile(r"N\d+")
PARTS = 8
PYRUHVROS_TYPES = frozenset({"boolean", "int", "long", "float", "double", "string"})

Written = list[tuple[Any, bytes]]


@cache
def random_samples(count: int) -> list[Sample]:
    """Returns records of up to three levels that differ in more than names, the same in every run."""
    found: dict[str, Sample] = {}

    @settings(
        max_examples=DRAWN_FOR_ONE * count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(records(Names(), 3).filter(lambda sample: sample.kind.num_fields > 0))
    def collect(sample: Sample) -> None:
        found[f"{NAME.sub('', json.dumps(sample.schema))} {sample.kind}"] = sample

    collect()
    assert len(found) >= count
    return list(found.values())[-count:]  # the first ones are the simplest


def written_and_read(samples: Sequence[Sample], rows: int) -> Iterator[Written]:
    """Yields what was written by each schema, after fastavro has read the rows back and pyruhvro has written them alike."""
    for number, sample in enumerate(samples):
        random = Random(number)
        made = [sample.random(random) for _ in range(rows)]
        data = encoded(sample.schema, column_of(sample, made, random.randint(0, 9), 2))
        values = [one for one in data if one is not None]
        assert len(values) == rows
        assert read_all(sample.schema, values) == [sample.read(row) for row in made]
        if is_known_to_pyruhvro(sample.schema):
            assert as_pyruhvro(sample.schema, values) == values
        yield [(sample.schema, one) for one in values]


def read_all(schema: Any, values: Sequence[bytes]) -> list[Any]:
    """Reads values with fastavro, which must take all bytes."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = []
    for value in values:
        stream = io.BytesIO(value)
        found.append(fastavro.schemaless_reader(stream, parsed, None))
        assert stream.tell() == len(value)
    return found


def is_known_to_pyruhvro(schema: Any) -> bool:
    """Returns whether pyruhvro reads a schema.

    It knows no fixed, decimals, times, unions of several types, records without fields and maps of bytes.
    """
    if isinstance(schema, str):
        return schema in PYRUHVROS_TYPES
    if isinstance(schema, list):
        return len(schema) == 2 and "null" in schema and any(map(is_known_to_pyruhvro, schema))
    if "logicalType" in schema:
        return False
    match schema["type"]:
        case "record":
            return bool(schema["fields"]) and all(is_known_to_pyruhvro(field["type"]) for field in schema["fields"])
        case "array":
            return is_known_to_pyruhvro(schema["items"])
        case "map":
            return is_known_to_pyruhvro(schema["values"])
        case kind:
            return bool(kind == "enum")


def as_pyruhvro(schema: Any, values: Sequence[bytes]) -> list[bytes]:
    text = json.dumps(schema)
    batch = pyruhvro.deserialize_array(list(values), text)
    (found,) = pyruhvro.serialize_record_batch(batch, text, 1)
    return [one.as_py() for one in found]


def check_java(written: Written) -> None:
    assert [data for data, _ in as_java(written)] == [data for _, data in written]


def test_fastavro_reads_rows_of_random_schemas() -> None:
    assert len(list(written_and_read(random_samples(FEW_SCHEMAS), FEW_ROWS))) == FEW_SCHEMAS


@pytest.mark.whole("starts Java; fastavro reads the same rows in the test before")
@pytest.mark.java
def test_java_reads_rows_of_random_schemas() -> None:
    check_java([one for written in written_and_read(random_samples(FEW_SCHEMAS), FEW_ROWS) for one in written])


@pytest.mark.java
@pytest.mark.whole("20 s each; the same with fewer rows is in make test")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_million_rows_of_two_hundred_schemas_are_read_back(part: int) -> None:
    samples = random_samples(SCHEMAS)[part::PARTS]

    check_java([one for written in written_and_read(samples, ROWS_OF_EACH) for one in written])
