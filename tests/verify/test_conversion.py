"""Decoded values become values of a column's type, and nothing that the column cannot hold is accepted."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.type import date_pb2, timeofday_pb2

from spark_kafka_sink.verify.conversion import AVRO, JSON, PROTOBUF, converter
from spark_kafka_sink.verify.json_values import JsonNumber
from spark_kafka_sink.verify.record_errors import MisfitError

UTC = datetime.UTC
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

# type, source, decoded, the value in Arrow
GOOD: list[tuple[pa.DataType, str, Any, Any]] = [
    (pa.int8(), AVRO, -128, -128),
    (pa.int64(), JSON, Decimal("7.0"), 7),
    (pa.float64(), JSON, "NaN", float("nan")),
    (pa.float64(), JSON, Decimal("0.1"), 0.1),
    (pa.float32(), AVRO, 1, 1.0),
    (pa.string(), AVRO, ID, str(ID)),
    (pa.binary(), AVRO, ID, ID.bytes),
    (pa.binary(), JSON, "/w==", b"\xff"),
    (pa.date32(), AVRO, datetime.date(1969, 12, 31), datetime.date(1969, 12, 31)),
    (pa.date32(), PROTOBUF, -1, datetime.date(1969, 12, 31)),
    (pa.date32(), JSON, "1969-12-31", datetime.date(1969, 12, 31)),
    (pa.timestamp("us", "UTC"), AVRO, MOMENT, MOMENT),
    (pa.timestamp("us", "UTC"), AVRO, -1000, MOMENT),
    (pa.timestamp("us", "UTC"), AVRO, -1, MOMENT),  # nanoseconds are rounded down
    (pa.timestamp("us", "UTC"), JSON, "1969-12-31T23:59:59.999999Z", MOMENT),
    (pa.timestamp("us"), PROTOBUF, -1, MOMENT.replace(tzinfo=None)),
    (pa.timestamp("us"), JSON, "1969-12-31T23:59:59.999999", MOMENT.replace(tzinfo=None)),
    (pa.time64("ns"), AVRO, datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
    (pa.time64("ns"), JSON, "01:02:03.000004", datetime.time(1, 2, 3, 4)),
    (pa.decimal128(38, 2), AVRO, Decimal("1.5"), Decimal("1.50")),
    (pa.decimal128(38, 2), PROTOBUF, "-0.01", Decimal("-0.01")),
    (pa.decimal128(38, 2), PROTOBUF, "", None),
    (pa.list_(pa.int32()), AVRO, [1, None], [1, None]),
    (pa.map_(pa.string(), pa.int32()), AVRO, {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    (pa.struct({"a": pa.int32(), "b": pa.string()}), JSON, {"b": "x"}, {"a": None, "b": "x"}),
    (pa.struct({"member0": pa.int64(), "member1": pa.string()}), AVRO, "x", {"member0": None, "member1": "x"}),
    (pa.struct({"a": pa.int32()}), AVRO, {"a": 1, "extra": None}, {"a": 1}),
    (pa.null(), AVRO, None, None),
    # a text of a float, as Arrow and Java write it and as a double; longer texts are other numbers
    (pa.float32(), JSON, Decimal("0.1"), 0.10000000149011612),
    (pa.float32(), JSON, Decimal("0.10000000149011612"), 0.10000000149011612),
    (pa.float32(), JSON, Decimal("3.4028235E38"), 3.4028234663852886e38),
    (pa.float32(), JSON, 16777216, 16777216.0),
    (pa.float32(), AVRO, float("inf"), float("inf")),
    (pa.float64(), JSON, 10**23, 1e23),
    (pa.float64(), JSON, Decimal("-0.0"), -0.0),
]


@pytest.mark.parametrize(("kind", "source", "decoded", "wanted"), GOOD, ids=str)
def test_a_value_of_the_columns_type_is_kept(kind: pa.DataType, source: str, decoded: Any, wanted: Any) -> None:
    found = pa.array([converter(kind, source)(decoded)], kind)
    assert str(found.to_pylist()[0]) == str(wanted)


BAD: list[tuple[pa.DataType, str, Any, str]] = [
    (pa.int8(), AVRO, 128, "the value is 128 (int), not a whole number of 8 bits"),
    (pa.int64(), AVRO, True, "the value is True (bool), not a whole number of 64 bits"),
    (pa.int64(), JSON, Decimal("0.5"), "the value is Decimal('0.5') (Decimal), not a whole number of 64 bits"),
    (pa.bool_(), AVRO, 1, "the value is 1 (int), not a boolean"),
    (pa.string(), AVRO, b"x", "the value is b'x' (bytes), not text"),
    (pa.binary(), AVRO, "x", "the value is 'x' (str), not bytes"),
    (pa.binary(), JSON, "?", "the value is '?' (str), not base64"),
    (pa.float64(), AVRO, "1", "the value is '1' (str), not a number"),
    (pa.date32(), JSON, "today", "the value is 'today' (str), not a date"),
    (pa.timestamp("us"), JSON, "2026-01-01T00:00:00Z", "without a zone"),
    (pa.decimal128(3, 1), AVRO, Decimal("1.25"), "not decimal128(3, 1)"),
    (pa.decimal128(3, 1), AVRO, Decimal("100.0"), "not decimal128(3, 1)"),
    (pa.list_(pa.int32()), AVRO, [1, "x"], "[1] is 'x' (str), not a whole number of 32 bits"),
    (pa.map_(pa.string(), pa.int32()), AVRO, {"k": "x"}, "[k] is 'x' (str)"),
    (pa.struct({"a": pa.struct({"b": pa.int32()})}), AVRO, {"a": {"b": "x"}}, "a.b is 'x' (str)"),
    (pa.struct({"a": pa.int32()}), AVRO, {"a": 1, "b": 2}, "b has the value 2, but there is no such column"),
    (pa.struct({"a": pa.int32()}), AVRO, 7, "the value is 7 (int), not a record"),
    (pa.null(), AVRO, 1, "the value is 1 (int), not null"),
    (pa.float32(), JSON, JsonNumber("0.1000000001"), "is 0.1000000001 (JsonNumber), not a number that 32 bits hold exactly"),
    (pa.float32(), JSON, Decimal("1e39"), "not a number that 32 bits hold exactly"),
    (pa.float32(), AVRO, 0.1, "the value is 0.1 (float), not a number that 32 bits hold exactly"),
    (pa.float32(), AVRO, 2**24 + 1, "not a number that 32 bits hold exactly"),
    (pa.float64(), AVRO, 2**53 + 1, "not a number that 64 bits hold exactly"),
    (pa.float64(), JSON, 10**400, "not a number that 64 bits hold exactly"),
    (pa.float64(), JSON, Decimal("1e400"), "not a number that 64 bits hold exactly"),
    (pa.int64(), JSON, Decimal("1e999999999"), "not a whole number of 64 bits"),
    (pa.timestamp("us", "UTC"), PROTOBUF, 10**21, "not a timestamp"),
    (pa.date32(), PROTOBUF, 2**31, "the value is 2147483648 (int), not a date"),
    (pa.date32(), PROTOBUF, date_pb2.Date(year=2026, month=2), "is 2026-2-0 (google.type.Date), not a date"),
    (pa.time64("ns"), PROTOBUF, timeofday_pb2.TimeOfDay(hours=24), "not a time"),
    (pa.duration("us"), PROTOBUF, 2**63, "not an interval"),
    (pa.struct({"a": pa.int32()}), JSON, {"\ud800": "\ud800"}, r"\ud800 has the value \ud800, but there is no such column"),
]


@pytest.mark.parametrize(("kind", "source", "decoded", "problem"), BAD, ids=str)
def test_any_other_value_is_a_misfit_with_its_path(kind: pa.DataType, source: str, decoded: Any, problem: str) -> None:
    with pytest.raises(MisfitError) as error:
        converter(kind, source)(decoded)
    assert problem in str(error.value)
    assert str(error.value).encode()  # is valid Unicode, because it becomes a row of Spark


@pytest.mark.parametrize(
    ("decoded", "default"),
    [
        (1, 1),
        ("x", "x"),
        (b"\xff", "\u00ff"),
        (Decimal("-0.01"), "\u00ff"),
        (datetime.date(1970, 1, 2), 1),
        (datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
        (datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        (datetime.time(0, 0, 1), 1000),
        (ID, str(ID)),
        ({"x": [1, b"a"]}, {"x": [1, "a"]}),
    ],
    ids=str,
)
def test_a_field_without_a_column_may_have_its_default(decoded: Any, default: Any) -> None:
    kind = pa.struct({"inner": pa.struct({"a": pa.int32()})})
    convert = converter(kind, AVRO, {"inner": {"added": default}})
    assert convert({"inner": {"a": 1, "added": decoded}}) == {"inner": {"a": 1}}
    with pytest.raises(MisfitError, match=r"^inner\.added has the value "):
        converter(kind, AVRO, {"inner": {"added": "another"}})({"inner": {"a": 1, "added": decoded}})
