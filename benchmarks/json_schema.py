"""`python -m benchmarks.json_schema`: what a row of JSON with a schema costs one core, beside confluent-kafka's serializer.

All contenders write the same rows, and validate them with the same schema. What counts is the CPU time of this process.

- This sink writes and checks columns.
- confluent-kafka's JSONSerializer is called for each row, with a dict that was made before. It validates with the library
  jsonschema. The other line is without that.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.pictures import machine
from spark_kafka_sink.formats.json_schema.json_schema_format import LoadedJsonSchema
from spark_kafka_sink.formats.schemas.framing import id_prefix
from tests.registry.stand_in import StandIn

BATCH_ROWS: Final = 10_000  # Spark's rows per Arrow batch
ROWS_OF_CONFLUENT: Final = 500  # it takes longer
SINK: Final = "this project"
UNCHECKED: Final = "this project, a schema without limits"
CONFLUENT: Final = "confluent-kafka"
CONFLUENT_UNCHECKED: Final = "confluent-kafka, validate=False"

_NULLABLE: Final[Mapping[str, Any]] = {
    "note": {"type": "string", "maxLength": 40},
    "price": {"type": "number", "minimum": 0},
    "count": {"type": "integer", "minimum": 0, "maximum": 10_000},
}
_PROPERTIES: Final[Mapping[str, Any]] = {
    "id": {"type": "integer"},
    "status": {"enum": ["new", "paid", "sent"]},
    "name": {"type": "string", "minLength": 1},
    "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
    "at": {"type": "string", "format": "date-time"},
    "flag": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    **_NULLABLE,
}
SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": _PROPERTIES,
    "required": [name for name in _PROPERTIES if name not in _NULLABLE],
    "additionalProperties": False,
}
OPEN_SCHEMA: Final = {"type": "object", "title": "Order"}

Write = Callable[[], Sequence[bytes | None]]


def column(rows: int) -> pa.Array:
    """Returns rows of ten fields. A tenth of the rows of three of them is null."""
    random = np.random.default_rng(1)
    numbers = pa.array(random.integers(0, 10_000, rows))
    texts = numbers.cast(pa.string())
    tags = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * 2), pa.concat_arrays([texts, texts]))
    columns = {
        "id": pa.array(random.integers(0, 2**31, rows)),
        "status": pa.array(["new", "paid", "sent"]).take(pa.array(random.integers(0, 3, rows))),
        "name": pc.binary_join_element_wise("somebody ", texts, ""),
        "code": pc.binary_join_element_wise("DE-", texts, ""),
        "at": pa.array(random.integers(16 * 10**14, 17 * 10**14, rows)).cast(pa.timestamp("us", "UTC")),
        "flag": pa.array(random.random(rows) < 0.5),
        "tags": tags,
        "note": pc.binary_join_element_wise("call ", texts, ""),
        "price": pa.array(random.random(rows) * 100),
        "count": numbers,
    }
    for name in _NULLABLE:
        columns[name] = pc.if_else(pa.array(random.random(rows) >= 0.1), columns[name], pa.nulls(rows, columns[name].type))
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def writers(rows: int, registry: str, stack: ExitStack) -> Mapping[str, Write]:
    """Returns for each contender the function that writes `rows` rows, behind the id of the schema."""
    values = column(rows)
    checked, unchecked = (LoadedJsonSchema(json.dumps(schema), {}).fit(values.type) for schema in (SCHEMA, OPEN_SCHEMA))
    client = stack.enter_context(SchemaRegistryClient({"url": registry}))
    return {
        SINK: lambda: checked.encode(values, id_prefix(1)),
        UNCHECKED: lambda: unchecked.encode(values, id_prefix(1)),
        CONFLUENT: _confluent(values, client, validate=True),
        CONFLUENT_UNCHECKED: _confluent(values, client, validate=False),
    }


def _confluent(values: pa.Array, client: SchemaRegistryClient, *, validate: bool) -> Write:
    texts = [json.loads(text) for text in LoadedJsonSchema(json.dumps(SCHEMA), {}).fit(values.type).encode(values).to_pylist()]
    serializer = JSONSerializer(json.dumps(SCHEMA), client, conf={"validate": validate})
    context = SerializationContext("orders", MessageField.VALUE)
    return lambda: [serializer(row, context) for row in texts]


def measured(rounds: int) -> Mapping[str, float]:
    """Returns the median nanoseconds of CPU time per row. The contenders take turns, and the first round does not count."""
    taken: dict[str, list[float]] = {}
    with ExitStack() as stack:
        registry = stack.enter_context(StandIn())
        ours = writers(BATCH_ROWS, registry.url, stack)
        theirs = writers(ROWS_OF_CONFLUENT, registry.url, stack)
        for _ in range(rounds + 1):
            for name in ours:
                write, rows = (ours[name], BATCH_ROWS) if name in (SINK, UNCHECKED) else (theirs[name], ROWS_OF_CONFLUENT)
                begun = time.process_time_ns()
                write()
                taken.setdefault(name, []).append((time.process_time_ns() - begun) / rows)
    return {name: median(times[1:]) for name, times in taken.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.json_schema", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the medians are printed (%(default)s)")
    found = measured(parser.parse_args(arguments).rounds)
    print(f"{machine()}\n\n| contender | ns per row | times as fast as confluent-kafka |\n| --- | ---: | ---: |")
    for name, ns in found.items():
        print(f"| {name} | {ns:,.0f} | {found[CONFLUENT] / ns:.1f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
