"""Avro's dates and timestamps outside the years 1 to 9999, which Spark and Java have and Python's classes do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from spark_kafka_sink.registry.registry_client import SchemaText
from spark_kafka_sink.verify.schema_ids import TopicSchema

_Unit = Literal["D", "ms", "us"]
_UNITS: Final[Mapping[str, _Unit]] = {
    "int-date": "D",
    "long-timestamp-millis": "ms",
    "long-timestamp-micros": "us",
    "long-local-timestamp-millis": "ms",
    "long-local-timestamp-micros": "us",
}
"""Units of the logical types that Python's classes are too small for, by the names in fastavro's table of readers."""
_PREFIX: Final = "numpy-"
"""Begins the names of the same logical types read as numpy's datetime64."""


def with_wide_times(found: TopicSchema) -> TopicSchema | None:
    """Returns a schema whose dates and timestamps fastavro reads as `numpy.datetime64`; None if it has none."""
    from fastavro.read import LOGICAL_READERS

    assert found.schema is not None
    for name, unit in _UNITS.items():
        kind, _, logical = name.partition("-")
        LOGICAL_READERS[f"{kind}-{_PREFIX}{logical}"] = _reader(unit)
    texts = {name: _renamed(one) for name, one in found.named}
    schema = _renamed(found.schema)
    if schema == found.schema and texts == dict(found.named):
        return None
    return replace(found, schema=schema, named=tuple(texts.items()))


def _reader(unit: _Unit) -> Callable[..., Any]:
    return lambda number, *_: np.datetime64(number, unit)


def _renamed(schema: SchemaText) -> SchemaText:
    try:
        read = json.loads(schema.text)
    except ValueError:  # the bare name of a type
        return schema
    return replace(schema, text=json.dumps(renamed)) if (renamed := _walk(read)) != read else schema


def _walk(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_walk(one) for one in kind]
    if not isinstance(kind, dict):
        return kind
    found = {name: _walk(one) for name, one in kind.items()}
    if f"{kind.get('type')}-{kind.get('logicalType')}" in _UNITS:
        found["logicalType"] = f"{_PREFIX}{kind['logicalType']}"
    return found
