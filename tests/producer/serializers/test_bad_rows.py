"""Each serializer names the bad rows of any slice, so that they can be split off: those alone, and the others stay the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.base.bad_rows import BadRow, good_pieces
from spark_kafka_sink.producer.base.producer_record import Headers
from spark_kafka_sink.producer.serializers.serializer import Serializer
from tests.every import every
from tests.formats.avro.test_columns import encoded as avro
from tests.formats.json_schema.test_json_fit import written as json_schema
from tests.formats.protobuf.test_columns import encoded as protobuf
from tests.producer.serializers.making import column_bytes, serializer

ROWS = 200
BAD = (0, 1, 63, 64, 66, 130, 199)
Encode = Callable[[pa.Array], list[bytes | None]]


class Picky(Serializer):
    """By value: refuses what is not positive, in two ways."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | None:
        if value is None:
            return None
        if value == 0:
            raise SerializationError("zero")
        return b"%d" % (1000 // (value + 1))


class Unnamed(Serializer):
    """Refuses columns, and does not say for which row."""

    def serialize_column(self, topic: str, column: pa.Array) -> pa.Array:
        raise SerializationError("some row is bad")


def of(name: object, **settings: object) -> Encode:
    made = serializer(name, **settings)
    return lambda column: column_bytes(made, column)


def mixed(good: Any, bad: Any) -> list[Any]:
    """Rows with nulls among them. Each bad one has the same problem."""
    return [bad if row in BAD else None if row % 5 == 3 else good for row in range(ROWS)]


def shifted(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A slice, whose bits of validity begin within a byte. What is before and behind it is bad."""
    return pa.array([values[0], values[0], values[0], *values, values[0]], kind).slice(3, len(values))


def invalid_text() -> pa.Array:
    whole = shifted(mixed(b"good", b"\xff"), pa.binary())
    return pa.Array.from_buffers(pa.string(), len(whole), whole.buffers(), offset=whole.offset)


STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])
RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", {"type": "array", "items": ["null", "int"]}]}],
}
WIDE = 2**40
OBJECT = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}}
PROTO = 'syntax = "proto3"; message M { int32 a = 1; repeated int32 b = 2; }'

CASES: dict[str, tuple[Encode, pa.Array]] = {
    "uuid": (of("uuid"), shifted(mixed(str(uuid.UUID(int=7)), "no uuid"), pa.string())),
    "void": (of("void"), shifted([None if row not in BAD else 1 for row in range(ROWS)], pa.int64())),
    "text": (of("string", value__serializer__encoding="UTF-16"), invalid_text()),
    "json text": (of("json"), invalid_text()),
    "json": (of("json"), shifted(mixed({"x": [1.5]}, {"x": [1.5, float("nan")]}), pa.struct([("x", pa.list_(pa.float64()))]))),
    "list": (
        of("list", default__list__value__serde__inner="uuid"),
        shifted(mixed([str(uuid.UUID(int=7))], [str(uuid.UUID(int=7)), "x"]), pa.list_(pa.string())),
    ),
    "own": (of(Picky()), shifted(mixed(5, 0), pa.int64())),
    "own, other exception": (of(Picky()), shifted(mixed(5, -1), pa.int64())),
    "avro": (lambda column: avro(["null", RECORD], column), shifted(mixed({"a": 1, "b": [1, None]}, {"a": WIDE}), STRUCT)),
    "avro, inside": (lambda column: avro(["null", RECORD], column), shifted(mixed({"a": 1}, {"a": 1, "b": [2, WIDE]}), STRUCT)),
    "avro, null": (lambda column: avro(["null", RECORD], column), shifted(mixed({"a": 1}, {"a": None}), STRUCT)),
    "protobuf": (lambda column: protobuf(PROTO, column), shifted(mixed({"a": 1, "b": [1]}, {"a": WIDE}), STRUCT)),
    "protobuf, inside": (lambda column: protobuf(PROTO, column), shifted(mixed({"a": 1}, {"a": 1, "b": [2, WIDE]}), STRUCT)),
    "json-schema": (lambda column: json_schema(OBJECT, column), shifted(mixed({"a": 1}, {"a": 10}), STRUCT)),
}


@every("encode, column", CASES.values())
def test_the_bad_rows_of_a_column_are_found_and_the_others_are_as_without_them(encode: Encode, column: pa.Array) -> None:
    bad, good = list[int](), list[bytes | None]()
    for piece in good_pieces(ROWS, lambda start, stop: encode(column.slice(start, stop - start))):
        if isinstance(piece, BadRow):
            bad.append(piece.row)
            assert f"row {piece.row}" in piece.error.message
            with pytest.raises(SerializationError):
                encode(column.slice(piece.row, 1))
        else:
            good += piece.result
    assert bad == list(BAD)
    assert good == encode(column.take(pa.array([row for row in range(ROWS) if row not in BAD])))


def test_an_error_that_names_no_row_is_about_all_of_them() -> None:
    made = serializer(Unnamed())
    with pytest.raises(SerializationError, match="some row is bad"):
        list(good_pieces(3, lambda start, stop: made.serialize_column("t", pa.array([1, 2, 3]).slice(start, stop - start))))
