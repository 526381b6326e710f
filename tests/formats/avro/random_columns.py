"""Hypothesis: random Avro schemas with columns that fit them, and what a reader must read from each row.

Under nulls lies what Arrow allows to lie there: values of any kind. Columns are slices of longer ones.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tests.formats.avro.random_values import Draw, random_text, random_value

UTC = datetime.UTC
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)
INT64 = st.integers(-300, 300) | st.integers(-(2**40), 2**40) | st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-300, 300) | st.integers(-(2**31), 2**31 - 1)
FLOATS = st.floats(allow_nan=False, width=32)
DATETIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
MAX_ITEMS = 4
PRESENT = 0.7  # share of the rows of a nullable type that have a value
_EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Sample:
    """A schema, the type of a column, and how to make columns and what is read from them.

    Attributes:
        schema: the schema as JSON.
        kind: type of the column.
        values: strategy for a value; None is not among them unless the schema has null.
        array: makes a column of values.
        read: what a reader returns for a value.
        random: draws a value, faster than `values`.
    """

    schema: Any
    kind: pa.DataType
    values: st.SearchStrategy[Any]
    array: Callable[[Sequence[Any]], pa.Array]
    read: Callable[[Any], Any]
    random: Draw
    nullable: bool = False


def _plain(
    schema: Any,
    kind: pa.DataType,
    values: st.SearchStrategy[Any],
    read: Callable[[Any], Any] = lambda value: value,
    random: Draw | None = None,
) -> Sample:
    return Sample(schema, kind, values, lambda rows: pa.array(rows, kind), read, random or random_value(schema, kind))


def _logical(base: str, logical: str, **more: int) -> dict[str, Any]:
    return {"type": base, "logicalType": logical, **more}


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    unscaled = st.integers(-300, 300).filter(lambda number: abs(number) <= most) | st.integers(-most, most)
    return unscaled.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


def _to_ms(value: datetime.datetime) -> datetime.datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _nanos(value: int) -> int:
    return value


_TIMES = st.times()
_IN_UTC = DATETIMES.map(lambda value: value.replace(tzinfo=UTC))
_NANOS = st.integers(-(2**62), 2**62)

PLAIN: Sequence[Sample] = (
    _plain("boolean", pa.bool_(), st.booleans()),
    *(_plain("int", kind, st.integers(-128, 127)) for kind in (pa.int8(), pa.int16(), pa.int64())),
    *(_plain("int", kind, st.integers(0, 255)) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    _plain("int", pa.int32(), INT32),
    _plain("long", pa.int32(), INT32),
    _plain("long", pa.int64(), INT64),
    _plain("long", pa.uint64(), st.integers(0, 2**63 - 1)),
    _plain("float", pa.float32(), FLOATS),
    _plain("float", pa.float16(), st.floats(allow_nan=False, width=16).map(np.float16)),
    _plain("double", pa.float64(), st.floats(allow_nan=False)),
    _plain("double", pa.float32(), FLOATS),
    *(_plain("bytes", kind, st.binary(max_size=20)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    _plain("bytes", pa.binary(3), st.binary(min_size=3, max_size=3)),
    _plain("bytes", pa.string(), TEXT, str.encode),
    *(_plain("string", kind, TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    _plain("string", pa.dictionary(pa.int8(), pa.string()), TEXT),
    _plain(_logical("int", "date"), pa.date32(), st.dates()),
    _plain(_logical("int", "date"), pa.date64(), st.dates()),
    _plain(_logical("int", "time-millis"), pa.time32("s"), _TIMES.map(lambda time: time.replace(microsecond=0))),
    _plain(_logical("int", "time-millis"), pa.time32("ms"), _TIMES.map(lambda time: time.replace(microsecond=5000))),
    _plain(_logical("int", "time-millis"), pa.time64("us"), _TIMES.map(lambda time: time.replace(microsecond=7000))),
    _plain(_logical("long", "time-micros"), pa.time32("ms"), _TIMES.map(lambda time: time.replace(microsecond=7000))),
    _plain(_logical("long", "time-micros"), pa.time64("us"), _TIMES),
    _plain(_logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), _IN_UTC, _to_ms),
    _plain(_logical("long", "timestamp-millis"), pa.timestamp("ms", "Europe/Berlin"), _IN_UTC, _to_ms),
    _plain(_logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), _IN_UTC),
    _plain(_logical("long", "timestamp-micros"), pa.timestamp("ms", "UTC"), _IN_UTC, _to_ms),
    _plain(_logical("long", "timestamp-nanos"), pa.timestamp("ns", "UTC"), _NANOS, _nanos),
    _plain(_logical("long", "local-timestamp-millis"), pa.timestamp("us"), DATETIMES, _to_ms),
    _plain(_logical("long", "local-timestamp-micros"), pa.timestamp("us"), DATETIMES),
    _plain(_logical("long", "local-timestamp-nanos"), pa.timestamp("ns"), _NANOS, _nanos),
    *(
        _plain(_logical("bytes", "decimal", precision=precision, scale=scale), kind(precision, scale), decimals(precision, scale))
        for kind, precision, scale in (
            (pa.decimal32, 7, 2),
            (pa.decimal64, 15, 4),
            (pa.decimal128, 10, 2),
            (pa.decimal128, 18, 0),
            (pa.decimal128, 38, 10),
            (pa.decimal256, 60, 20),
        )
    ),
    _plain(_logical("bytes", "decimal", precision=12, scale=4), pa.decimal128(10, 2), decimals(10, 2)),
    _plain(_logical("bytes", "decimal", precision=9, scale=0), pa.int32(), st.integers(-999_999_999, 999_999_999), Decimal),
    _plain(_logical("string", "uuid"), pa.string(), st.uuids().map(str), UUID),
    _plain(_logical("string", "uuid"), pa.binary(16), st.uuids().map(lambda uuid: uuid.bytes), lambda data: UUID(bytes=data)),
    _plain(_logical("string", "uuid"), pa.uuid(), st.uuids().map(lambda uuid: uuid.bytes), lambda data: UUID(bytes=data)),
    _plain("null", pa.null(), st.none()),
)
SYMBOLS = ("A", "b_2", "C" * 20)


@dataclass
class Names:
    """Makes names that occur once in a schema."""

    used: int = 0

    def new(self) -> str:
        self.used += 1
        return f"N{self.used}"


@st.composite
def leaves(draw: st.DrawFn, names: Names) -> Sample:
    kind = draw(st.sampled_from(["plain", "plain", "plain", "enum", "fixed", "fixed decimal"]))
    if kind == "enum":
        schema = {"type": "enum", "name": names.new(), "symbols": SYMBOLS}
        arrow = draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]))
        return _plain(schema, arrow, st.sampled_from(SYMBOLS), random=lambda random: random.choice(SYMBOLS))
    if kind == "fixed":
        size = draw(st.sampled_from([1, 8, 13]))
        arrow = draw(st.sampled_from([pa.binary(), pa.binary(size), pa.large_binary()]))
        return _plain({"type": "fixed", "name": names.new(), "size": size}, arrow, st.binary(min_size=size, max_size=size))
    if kind == "fixed decimal":
        size, precision = draw(st.sampled_from([(2, 4), (8, 18), (9, 10), (16, 38), (20, 30), (40, 76)]))
        arrow = (pa.decimal256 if precision > 38 else pa.decimal128)(precision, 2)
        decimal: dict[str, Any] = {
            **_logical("fixed", "decimal", precision=precision, scale=2),
            "name": names.new(),
            "size": size,
        }
        return _plain(decimal, arrow, decimals(precision, 2))
    return draw(st.sampled_from(PLAIN))


@st.composite
def samples(draw: st.DrawFn, names: Names, depth: int) -> Sample:
    """Any type with at most `depth` levels below it."""
    kind = draw(st.sampled_from(["leaf", "record", "array", "map", "members"] if depth else ["leaf"]))
    if kind == "record":
        return draw(records(names, depth))
    if kind == "array":
        return _array(draw(nullables(names, depth - 1)), draw(st.sampled_from(["list", "large", "fixed"])))
    if kind == "map":
        return _map(draw(nullables(names, depth - 1)))
    if kind == "members":
        return _members([draw(records(names, depth)), draw(records(names, depth))])
    return draw(leaves(names))


@st.composite
def nullables(draw: st.DrawFn, names: Names, depth: int) -> Sample:
    """Any type, or its union with null."""
    inner = draw(samples(names, depth))
    if inner.schema == "null" or isinstance(inner.schema, list) or not draw(st.booleans()):
        return inner
    schema = draw(st.sampled_from([["null", inner.schema], [inner.schema, "null"]]))
    return Sample(
        schema,
        inner.kind,
        st.none() | inner.values,
        _with_nulls(inner),
        lambda value: None if value is None else inner.read(value),
        lambda random: inner.random(random) if random.random() < PRESENT else None,
        nullable=True,
    )


def _with_nulls(inner: Sample) -> Callable[[Sequence[Any]], pa.Array]:
    def array(rows: Sequence[Any]) -> pa.Array:
        filler = next((row for row in rows if row is not None), None)
        if filler is None:
            return pa.nulls(len(rows), inner.kind)
        full = inner.array([filler if row is None else row for row in rows])
        return hiding(full, [row is not None for row in rows])

    return array


def hiding(full: pa.Array, valid: Sequence[bool]) -> pa.Array:
    """Returns a column with nulls above values."""
    if isinstance(full, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(full.type, hiding(full.storage, valid))
    if pa.types.is_dictionary(full.type):
        return pa.DictionaryArray.from_arrays(hiding(full.indices, valid), full.dictionary)
    if pa.types.is_struct(full.type):
        children = [full.field(index) for index in range(full.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(full.type), mask=pa.array([not one for one in valid]))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if not pa.types.is_nested(full.type):
        return pa.Array.from_buffers(full.type, len(full), [bits, *full.buffers()[1:]])
    child = _entries(full) if pa.types.is_map(full.type) else full.values
    own = 1 if pa.types.is_fixed_size_list(full.type) else 2
    return pa.Array.from_buffers(full.type, len(full), [bits, *full.buffers()[1:own]], children=[child])


def _entries(full: pa.Array) -> pa.Array:
    fields = [pa.field("key", full.type.key_type, nullable=False), pa.field("value", full.type.item_type)]
    return pa.StructArray.from_arrays([full.keys, full.items], fields=fields)


def _offsets(rows: Sequence[Sequence[Any]]) -> list[int]:
    return [0, *np.cumsum([len(row) for row in rows]).tolist()]


def _array(items: Sample, form: str) -> Sample:
    kind = {"list": pa.list_(items.kind), "large": pa.large_list(items.kind), "fixed": pa.list_(items.kind, 2)}[form]

    def array(rows: Sequence[Any]) -> pa.Array:
        elements = items.array([item for row in rows for item in row])
        if form == "fixed":
            return pa.FixedSizeListArray.from_arrays(elements, 2)
        if form == "large":
            return pa.LargeListArray.from_arrays(pa.array(_offsets(rows), pa.int64()), elements)
        return pa.ListArray.from_arrays(pa.array(_offsets(rows), pa.int32()), elements)

    values = st.lists(items.values, min_size=2, max_size=2) if form == "fixed" else st.lists(items.values, max_size=MAX_ITEMS)
    return Sample(
        {"type": "array", "items": items.schema},
        kind,
        values,
        array,
        lambda row: [items.read(one) for one in row],
        lambda random: [items.random(random) for _ in range(2 if form == "fixed" else random.randint(0, MAX_ITEMS))],
    )


def _map(items: Sample) -> Sample:
    def array(rows: Sequence[Any]) -> pa.Array:
        keys = pa.array([key for row in rows for key in row], pa.string())
        values = items.array([value for row in rows for value in row.values()])
        return pa.MapArray.from_arrays(pa.array(_offsets(rows), pa.int32()), keys, values)

    return Sample(
        {"type": "map", "values": items.schema},
        pa.map_(pa.string(), items.kind),
        st.dictionaries(TEXT, items.values, max_size=MAX_ITEMS),
        array,
        lambda row: {key: items.read(value) for key, value in row.items()},
        lambda random: {random_text(random): items.random(random) for _ in range(random.randint(0, MAX_ITEMS))},
    )


@st.composite
def records(draw: st.DrawFn, names: Names, depth: int) -> Sample:
    """A record. Its columns may have another order than its fields, and fields with a default may have no column."""
    fields = {f"f{number}": draw(nullables(names, depth - 1)) for number in range(draw(st.integers(0, 4)))}
    columns = draw(st.permutations(list(fields)))
    schema_fields: list[dict[str, Any]] = [{"name": name, "type": field.schema} for name, field in fields.items()]
    defaults: dict[str, Any] = {}
    if draw(st.booleans()):
        default = draw(st.sampled_from(["", "short", "longer than what two words hold"]))
        schema_fields.insert(draw(st.integers(0, len(fields))), {"name": "other", "type": "string", "default": default})
        defaults["other"] = default
    kind = pa.struct([pa.field(name, fields[name].kind) for name in columns])

    def array(rows: Sequence[Any]) -> pa.Array:
        if not columns:
            return pa.array([{}] * len(rows), kind)
        children = [fields[name].array([row[name] for row in rows]) for name in columns]
        return pa.StructArray.from_arrays(children, fields=list(kind))

    return Sample(
        {"type": "record", "name": names.new(), "fields": schema_fields},
        kind,
        st.fixed_dictionaries({name: field.values for name, field in fields.items()}),
        array,
        lambda row: {**{name: field.read(row[name]) for name, field in fields.items()}, **defaults},
        lambda random: {name: field.random(random) for name, field in fields.items()},
    )


def _members(branches: Sequence[Sample]) -> Sample:
    """A union of records, as Spark reads it: a struct with a field for each type, of which one has a value."""
    kind = pa.struct([pa.field(f"member{number}", branch.kind) for number, branch in enumerate(branches)])

    def array(rows: Sequence[Any]) -> pa.Array:
        children = [
            _with_nulls(branch)([row[1] if row is not None and row[0] == number else None for row in rows])
            for number, branch in enumerate(branches)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind))

    def random_member(random: Random) -> tuple[int, Any] | None:
        number = random.randrange(len(branches) + 1)
        return None if number == len(branches) else (number, branches[number].random(random))

    values = st.one_of([st.tuples(st.just(number), branch.values) for number, branch in enumerate(branches)])
    return Sample(
        ["null", *(branch.schema for branch in branches)],
        kind,
        st.none() | values,
        array,
        lambda row: None if row is None else branches[row[0]].read(row[1]),
        random_member,
        nullable=True,
    )


@st.composite
def tables(draw: st.DrawFn, depth: int = 3) -> tuple[Sample, list[Any], pa.Array]:
    """A record with `depth` levels, rows of it (None: a tombstone), and the column."""
    sample = draw(records(Names(), depth))
    row = st.none() | sample.values if draw(st.booleans()) else sample.values
    rows = draw(st.lists(row, min_size=1, max_size=6))
    return sample, rows, column_of(sample, rows, draw(st.integers(0, 9)), draw(st.integers(0, 2)))


def column_of(sample: Sample, rows: Sequence[Any], before: int, after: int) -> pa.Array:
    """Returns the column of some rows, as a slice of a column with more rows before and after it."""
    filler = next((one for one in rows if one is not None), None)
    if filler is None:
        return pa.nulls(len(rows), sample.kind)
    full = _with_nulls(sample)([filler] * before + list(rows) + [filler] * after)
    return full.slice(before, len(rows))
