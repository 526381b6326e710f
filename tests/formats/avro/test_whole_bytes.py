"""Keys and values that are bytes and no record, which Confluent's clients write without their length."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentsSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import AvroSerializer
from spark_kafka_sink.formats.avro.avro_format import LoadedAvro
from tests.every import every
from tests.registry.stand_in import StandIn

DECIMAL = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2})
# Lengths around those where a varint gets one more byte.
SIZES = (0, 1, 63, 64, 65, 8191, 8192, 1_048_575, 1_048_576)


@pytest.mark.parametrize("schema", ['"bytes"', '{"type": "bytes"}'])
def test_bytes_are_those_of_confluents_serializer(stand_in: StandIn, schema: str) -> None:
    context = SerializationContext("events", MessageField.VALUE)
    values = [b"x" * size for size in SIZES]
    ours = AvroSerializer({"schema.registry.url": stand_in.url, "schema": schema})
    with SchemaRegistryClient({"url": stand_in.url}) as client:
        theirs, reader = ConfluentsSerializer(client, schema), AvroDeserializer(client)
        written = [ours.serialize("events", value) for value in values]
        assert [one[5:] for one in written if one is not None] == values
        assert [(theirs(value, context) or b"")[5:] for value in values] == values
        assert [reader(one, context) for one in written[1:]] == values[1:]  # it refuses data of 5 bytes
    assert ours.serialize_column("events", pa.array([*values, None])).to_pylist() == [*written, None]
    ours.close()


@every("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.binary(2)])
@every("prefix", [b"", b"\0\0\0\0\1"])
def test_columns_of_bytes_have_no_lengths(kind: pa.DataType, prefix: bytes) -> None:
    values: list[Any] = [b"ab", None, b"cd", b"ef"]
    column = pa.array(values, pa.binary()).cast(kind)
    plan = LoadedAvro('"bytes"', {}).fit(kind)
    assert plan.encode(column, prefix).to_pylist() == [None if one is None else prefix + one for one in values]
    assert plan.encode(column.slice(1, 2), prefix).to_pylist() == [None, prefix + b"cd"]
    assert plan.encode(column.slice(0, 0), prefix).to_pylist() == []
    assert plan.encode(pa.nulls(2, kind), prefix).to_pylist() == [None, None]


def test_decimals_have_no_lengths() -> None:
    loaded = LoadedAvro(DECIMAL, {})
    values = [Decimal("1.25"), None, Decimal("-1.28"), Decimal(10) ** 37, Decimal(0)]
    found = loaded.fit(pa.decimal256(40, 2)).encode(pa.array(values, pa.decimal256(40, 2)), b"\1").to_pylist()
    unscaled = [None if one is None else int(one * 100) for one in values]
    assert [None if one is None else int.from_bytes(one[1:], "big", signed=True) for one in found] == unscaled
    assert [loaded.encode_value(one, b"\1") for one in values] == found


def test_bytes_inside_of_others_have_their_length() -> None:
    assert LoadedAvro('["null", "bytes"]', {}).encode_value(b"a") == b"\2\2a"
    plan = LoadedAvro('{"type": "array", "items": "bytes"}', {}).fit(pa.list_(pa.binary()))
    assert plan.encode(pa.array([[b"a"]])).to_pylist() == [b"\2\2a\0"]
