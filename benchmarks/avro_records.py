"""Records of the Avro benchmarks: their schemas, and columns of random values, the same in every run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records.arrow_arrays import array_of_bytes

Random = np.random.Generator

# A type of the schema, and how to make a column of n rows.
_TYPES: Final[Mapping[str, tuple[Any, Callable[[Random, int], pa.Array]]]] = {
    "long": ("long", lambda random, rows: pa.array(random.integers(0, 2**31, rows))),
    "int": ("int", lambda random, rows: pa.array(random.integers(0, 10_000, rows, np.int32))),
    "double": ("double", lambda random, rows: pa.array(random.random(rows))),
    "float": ("float", lambda random, rows: pa.array(random.random(rows, np.float32))),
    "boolean": ("boolean", lambda random, rows: pa.array(random.random(rows) < 0.5)),
    "timestamp": (
        {"type": "long", "logicalType": "timestamp-micros"},
        lambda random, rows: pa.array(random.integers(16 * 10**14, 17 * 10**14, rows)).cast(pa.timestamp("us", "UTC")),
    ),
    "string": (
        "string",
        lambda random, rows: array_of_bytes([bytes(random.integers(97, 123, size, np.uint8)) for size in _sizes(random, rows)])
        .cast(pa.string()),
    ),
}  # fmt: skip
_MIXED: Final = ("long", "string", "int", "double", "boolean", "string", "timestamp", "long", "float", "int") * 2
_NULLS: Final = 0.1  # share of nulls in a nullable field


def _sizes(random: Random, rows: int) -> list[int]:
    return [int(size) for size in random.integers(2, 22, rows)]


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """The type of each field, in order. The last `nullable` fields are unions with null, and a tenth of their rows is null."""

    types: Sequence[str]
    nullable: int = 0

    @property
    def schema(self) -> str:
        """Returns the schema as JSON."""
        fields = []
        for number, name in enumerate(self.types):
            kind = _TYPES[name][0]
            fields.append({"name": f"f{number}", "type": ["null", kind] if self._has_nulls(number) else kind})
        return json.dumps({"type": "record", "name": "R", "fields": fields})

    def _has_nulls(self, number: int) -> bool:
        return number >= len(self.types) - self.nullable

    def column(self, rows: int) -> pa.Array:
        """Returns rows of the record."""
        random = np.random.default_rng(1)
        columns = []
        for number, name in enumerate(self.types):
            column = _TYPES[name][1](random, rows)
            if self._has_nulls(number):
                present = pa.array(random.random(rows) >= _NULLS)
                column = pc.if_else(present, column, pa.nulls(rows, column.type))
            columns.append(column)
        fields = [pa.field(f"f{n}", column.type, nullable=self._has_nulls(n)) for n, column in enumerate(columns)]
        return pa.StructArray.from_arrays(columns, fields=fields)


RECORDS: Final[Mapping[str, AvroRecord]] = {
    "avro-5": AvroRecord(("long", "string", "double", "int", "timestamp")),
    "avro-20": AvroRecord(_MIXED, nullable=10),
}


@cache
def rows_of(name: str, rows: int) -> pa.Array:
    """Returns rows of a record of RECORDS, made once."""
    return RECORDS[name].column(rows)
