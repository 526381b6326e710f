"""Each key of a map is written once, because readers keep one of its values. No map has a null key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.formats.schema_format import schema_format
from spark_kafka_sink.producer.serializers.arrays import BadRowError, check_keys
from tests.every import every

KIND = pa.map_(pa.string(), pa.int64())
SCHEMAS = {
    "avro": '{"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values": "long"}}]}',
    "json-schema": '{"type": "object"}',
    "protobuf": 'syntax = "proto3"; message R { map<string, int64> m = 1; }',
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_key_that_a_map_has_twice_is_refused_by_each_format(name: str) -> None:
    found = schema_format(name)
    column = pa.array([{"m": [("a", 1), ("b", 2)]}, {"m": [("a", 1)]}, {"m": [("a", 1), ("a", 1)]}], pa.struct([("m", KIND)]))
    plan = found.load(*found.prepared(SCHEMAS[name], {}, None)).fit(column.type)

    assert None not in plan.encode(column.slice(0, 2)).to_pylist()
    with pytest.raises(SerializationError, match=r"^\[SERIALIZATION\] row 2: m: a map has a key twice$"):
        plan.encode(column)


KEYS = ["", "a", "b", "a"]


@every(
    "keys",
    [
        pa.array(KEYS),
        pa.array(KEYS, pa.large_string()),
        pa.array(KEYS, pa.string_view()),
        pa.array(KEYS).dictionary_encode(),
        pa.array([0, 1, 2, 1]),
        pa.array([0, 1, 2, 1], pa.uint64()),
        pa.array([False, True, True, True]),
    ],
)
def test_keys_of_every_type_are_compared(keys: pa.Array) -> None:
    check_keys(keys, np.array([0, 2, 3, 4]))
    check_keys(keys.slice(1), np.array([0, 1, 2, 3]))
    with pytest.raises(BadRowError) as caught:
        check_keys(keys, np.array([0, 1, 4]))
    assert caught.value.row == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.array([[(None, 1)]], KIND),
        lambda: pa.MapArray.from_arrays([0, 1], pa.array([None], pa.string()), pa.array([1])),
    ],
    ids=["rows", "arrays"],
)
def test_arrow_makes_no_map_with_a_null_key(make: Callable[[], pa.Array]) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"[Mm]ap.*(null|NULL)"):
        make()
