"""The JSON of a column parses back to its rows, is what single values become, and names what JSON cannot hold."""

from __future__ import annotations

import base64
import datetime
import json
import time
from collections import namedtuple
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.partitioners.key_hash import murmur2
from tests.every import every
from tests.examples import examples
from tests.producer.serializers.making import column_bytes, serializer, single_bytes, slices

JSON = serializer("json")
UTC = datetime.UTC
SAME_HASH = ("k8312", "k201076")


@pytest.fixture
def _new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def texts(column: pa.Array) -> list[str | None]:
    return [None if row is None else row.decode() for row in column_bytes(JSON, column)]


def without_nulls(value: Any) -> Any:
    """Structs lose their null fields; lists keep nulls."""
    if isinstance(value, dict):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    return [without_nulls(element) for element in value] if isinstance(value, list) else value


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text('\x00\x1f\x7f"\\/\n\té', max_size=4)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def leaves() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    return st.sampled_from(
        [
            (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
            (pa.uint64(), st.integers(0, 2**64 - 1)),
            (pa.float64(), FLOATS),
            (pa.bool_(), st.booleans()),
            (pa.string(), TEXT),
            (pa.large_string(), TEXT),
            (pa.null(), st.none()),
        ]
    )


def nested(
    inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    def of_list(element: tuple[pa.DataType, st.SearchStrategy[Any]]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        kind, values = element
        return pa.list_(kind), st.lists(st.none() | values, max_size=3)

    def of_struct(fields: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        names = [f'f"{place}é' for place in range(len(fields))]
        kind = pa.struct([pa.field(name, field[0]) for name, field in zip(names, fields, strict=True)])
        return kind, st.fixed_dictionaries({name: st.none() | field[1] for name, field in zip(names, fields, strict=True)})

    return inner.map(of_list) | st.lists(inner, max_size=3).map(of_struct)


@settings(max_examples=examples(150), deadline=None)  # a busy machine is no failure
@given(data=st.data())
def test_a_column_of_any_nesting_parses_back_and_is_its_single_values(data: st.DataObject) -> None:
    kind, values = data.draw(st.recursive(leaves(), nested, max_leaves=6))
    rows = data.draw(st.lists(st.none() | values, max_size=9))
    for column in slices(pa.array(rows, kind)):
        wanted = [without_nulls(row) for row in column.to_pylist()]
        found = texts(column)
        assert [None if text is None else json.loads(text) for text in found] == wanted
        assert [None if text is None else type(json.loads(text)) for text in found] == [
            None if row is None else type(row) for row in wanted
        ]
        parsed = [None if row is None else json.loads(row) for row in single_bytes(JSON, wanted)]
        assert parsed == wanted


@settings(max_examples=examples(60), deadline=None)  # a busy machine is no failure
@given(values=st.lists(st.none() | TEXT, max_size=9))
def test_text_is_escaped_as_json_dumps_does(values: list[str | None]) -> None:
    wanted = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    assert texts(pa.array(values, pa.string())) == wanted
    assert single_bytes(JSON, values) == [None if text is None else text.encode() for text in wanted]


@settings(max_examples=examples(60), deadline=None)  # a busy machine is no failure
@given(values=st.lists(st.none() | st.binary(max_size=9), max_size=9))
def test_bytes_are_base64(values: list[bytes | None]) -> None:
    wanted = [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in values]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert texts(pa.array(values, kind)) == wanted
    assert texts(pa.array(values, pa.binary()).slice(2)) == wanted[2:]
    assert single_bytes(JSON, values) == [None if text is None else text.encode() for text in wanted]


def test_floats_keep_their_digits_and_their_kind() -> None:
    values = [1.0, 0.1, -0.0, 1e20, 1e-7, 123456789.125, 5e-324, None]
    assert texts(pa.array(values)) == ["1.0", "0.1", "-0.0", "1e+20", "1e-7", "123456789.125", "5e-324", None]
    assert texts(pa.array([0.1, 16777216.0], pa.float32())) == ["0.1", "16777216.0"]
    assert JSON.serialize("topic", np.float32(0.1)) == b"0.1"
    assert texts(pa.array([np.float16(1.5), np.float16(2)], pa.float16())) == ["1.5", "2.0"]


@every(
    "kind, value, text",
    [
        (pa.decimal128(20, 10), Decimal("12.5000000000"), "12.5000000000"),
        (pa.decimal128(38, 0), Decimal(10**37), "1" + "0" * 37),
        (pa.decimal128(20, 10), Decimal("1E-10"), "1E-10"),
        (pa.date32(), datetime.date(2026, 1, 2), '"2026-01-02"'),
        (pa.timestamp("us", "UTC"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), '"2026-01-02T03:04:05.000006Z"'),
        (
            pa.timestamp("us", "America/New_York"),
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            '"2026-01-02T03:04:05.000000Z"',
        ),
        (pa.timestamp("us", "UTC"), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), '"1969-12-31T23:59:59.999999Z"'),
        (pa.time64("us"), datetime.time(1, 2, 3, 4), '"01:02:03.000004"'),
        (pa.bool_(), True, "true"),
        (pa.int8(), -5, "-5"),
        (pa.dictionary(pa.int8(), pa.string()), "a", '"a"'),
    ],
)
def test_what_json_has_no_type_for_has_a_text(kind: pa.DataType, value: Any, text: str) -> None:
    assert texts(pa.array([value, None], kind)) == [text, None]
    assert texts(pa.array([{"f": value}], pa.struct([("f", kind)]))) == [f'{{"f":{text}}}']
    assert JSON.serialize("topic", value) == text.encode()


def test_a_timestamp_without_a_zone_has_none() -> None:
    assert texts(pa.array([datetime.datetime(2026, 1, 2)], pa.timestamp("us"))) == ['"2026-01-02T00:00:00.000000"']


def test_a_single_datetime_is_written_in_utc() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
    assert JSON.serialize("topic", at) == b'"2026-01-02T08:04:05.000000Z"'


@pytest.mark.usefixtures("_new_york")
def test_a_single_datetime_without_a_zone_is_local_time() -> None:
    assert JSON.serialize("topic", datetime.datetime(2026, 1, 2, 3, 4, 5)) == b'"2026-01-02T08:04:05.000000Z"'


def test_uuids_are_text() -> None:
    uuid = UUID("01234567-89ab-cdef-fedc-ba9876543210")
    assert JSON.serialize("topic", [uuid]) == f'["{uuid}"]'.encode()
    if hasattr(pa, "uuid"):
        column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.bytes, None], pa.binary(16)))
        assert texts(column) == [f'"{uuid}"', None]


def test_maps_keep_their_nulls_and_structs_do_not() -> None:
    maps = pa.array([[("a", 1), ('b"', None)], None, []], pa.map_(pa.string(), pa.int32()))
    assert texts(maps) == ['{"a":1,"b\\"":null}', None, "{}"]
    assert texts(maps.slice(1)) == [None, "{}"]
    assert texts(pa.array([{"a": None, "b": 1, "c": None}, {"a": None, "b": None, "c": None}])) == ['{"b":1}', "{}"]
    assert texts(pa.array([{}, None], pa.struct([]))) == ["{}", None]


def test_a_dict_keeps_its_none_and_a_named_tuple_does_not() -> None:
    row = namedtuple("row", ["a", "b"])
    assert JSON.serialize("topic", {"a": None, "b": row(1, None)}) == b'{"a":null,"b":{"a":1}}'


def test_a_named_tuple_with_two_fields_of_one_name_is_refused() -> None:
    row = Row("a", "b", "a")  # spark.sql("SELECT 1 AS a, 2 AS b, 3 AS a") returns such rows
    with pytest.raises(SerializationError, match="an object of JSON cannot have two fields 'a'; rename one of them"):
        JSON.serialize("topic", row(1, 2, None))


def test_what_lies_under_a_null_struct_or_list_is_not_looked_at() -> None:
    fields = pa.StructArray.from_arrays([pa.array([1.0, float("nan")])], ["f"], mask=pa.array([False, True]))
    assert texts(fields) == ['{"f":1.0}', None]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array([1.0, float("nan")]), mask=pa.array([False, True]))
    assert texts(lists) == ["[1.0]", None]


@every(
    "column, row, problem",
    [
        (pa.array([1.0, None, float("nan")]), 2, "nan, which JSON cannot represent"),
        (pa.array([0, 10**18], pa.timestamp("us")), 1, "its year is not from 1 to 9999"),
        (
            pa.array([None, {"a": 10**8}], pa.struct([("a", pa.date32())])),
            1,
            "a: its year is not from 1 to 9999",
        ),
        (pa.array([[1.0], [2.0, float("inf")]]), 1, "[1]: inf, which JSON cannot represent"),
        (pa.array([{"a": 1.0}, {"a": float("-inf")}]), 1, "a: -inf, which JSON cannot represent"),
        (pa.array([None, {"a": [{"b": 1.0}, {"b": float("nan")}]}]), 1, "a[1].b: nan, which JSON cannot represent"),
        (pa.array([[], [("k", float("nan"))]], pa.map_(pa.string(), pa.float64())), 1, "[0]: nan, which JSON cannot represent"),
    ],
)
def test_a_number_that_json_lacks_is_named_with_its_row_and_the_way_to_it(column: pa.Array, row: int, problem: str) -> None:
    with pytest.raises(SerializationError) as caught:
        JSON.serialize_column("topic", column)
    assert caught.value.message == f"row {row}: {problem}"
    assert caught.value.facts["row"] == row


def test_text_that_is_no_utf8_is_refused() -> None:
    rows = pa.array([b"a", b"\xff"])
    column = pa.Array.from_buffers(pa.string(), 2, rows.buffers())
    with pytest.raises(SerializationError, match="row 1: f: text is not valid UTF-8"):
        JSON.serialize_column("topic", pa.StructArray.from_arrays([column], ["f"]))


@every(
    "kind, problem",
    [
        (pa.duration("us"), "but JSON has nothing for duration[us]; cast that to string"),
        (pa.struct([("a", pa.list_(pa.month_day_nano_interval()))]), "but JSON has nothing for month_day_nano_interval"),
        (pa.map_(pa.int32(), pa.int32()), "but keys of JSON are text, not int32; cast them to string"),
        (pa.map_(pa.string(), pa.duration("s")), "but JSON has nothing for duration[s]"),
        (pa.dictionary(pa.int8(), pa.duration("s")), "but JSON has nothing for dictionary"),
        (
            pa.list_(pa.struct([("a", pa.int8()), ("", pa.int8()), ("", pa.int8())])),
            "but an object of JSON cannot have two fields ''",
        ),
    ],
)
def test_a_type_that_json_lacks_is_refused_before_any_row(kind: pa.DataType, problem: str) -> None:
    with pytest.raises(SerializationError) as caught:
        JSON.accepts(kind)
    assert problem in str(caught.value)


@every(
    "value, at",
    [
        ("\ud83d", 0),
        ("a\ude00", 1),
        ("\ud83d\ud83d\ude00", 0),
        ("\ud83d\ude00\ude00", 2),
        ({"a": ["\ud83d"]}, 0),
        ({"k\ud83d": 1}, 1),
    ],
)
def test_half_a_surrogate_pair_is_refused(value: Any, at: int) -> None:
    with pytest.raises(SerializationError, match=f"text with a lone surrogate at {at} cannot be encoded as UTF-8"):
        JSON.serialize("topic", value)


def test_both_halves_of_a_surrogate_pair_are_a_character() -> None:
    assert JSON.serialize("topic", "\ud83d\ude00") == '"\U0001f600"'.encode()


def test_lists_of_nulls_in_a_map_behind_a_null() -> None:
    """Arrow's cast of such a map to a list has wrong offsets."""
    column = pa.array([None, [("a", [None] * 2)], None, [("b", [None])]], pa.map_(pa.string(), pa.list_(pa.null())))

    assert texts(column.slice(1)) == ['{"a":[null,null]}', None, '{"b":[null]}']


@every("key", [pa.string(), pa.large_string()])
@every("filler", [0, 3, 70, 300])
def test_a_map_with_a_key_twice_is_a_bad_row(filler: int, key: pa.DataType) -> None:
    """Readers take the first or the last value of such a key."""
    kind = pa.map_(key, pa.int64())
    others = [(f"k{number}", number) for number in range(filler)]
    rows = [
        others,
        None,
        [],
        [("a", 1), *others, ("b", 2)],
        [("a", 1), *others],
        [("b", 1), *others, ("b", 2)],
        [("c", 1), ("c", 1)],
    ]
    column = pa.array(rows, kind)
    assert [None if row is None else json.loads(row) for row in texts(column.slice(0, 5))] == [
        None if row is None else dict(row) for row in rows[:5]
    ]
    for part, bad in ((column, 5), (column.slice(2), 3), (column.slice(6), 0)):
        with pytest.raises(SerializationError, match=rf"^\[SERIALIZATION\] row {bad}: a map has a key twice$"):
            column_bytes(JSON, part)
    nested = pa.array([{"tags": [[], row]} for row in rows], pa.struct([("tags", pa.list_(kind))]))
    with pytest.raises(SerializationError, match=r"row 5: tags\[1\]: a map has a key twice"):
        column_bytes(JSON, nested)


def test_keys_with_one_hash_are_two_keys() -> None:
    """Both hash to the same number, so they are compared."""
    kind = pa.map_(pa.string(), pa.int64())
    assert murmur2(pa.array([SAME_HASH[0].encode()])) == murmur2(pa.array([SAME_HASH[1].encode()]))
    column = pa.array([[(SAME_HASH[0], 1), (SAME_HASH[1], 2)]], kind)
    assert [json.loads(row or "") for row in texts(column)] == [{SAME_HASH[0]: 1, SAME_HASH[1]: 2}]
