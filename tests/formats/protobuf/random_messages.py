"""Hypothesis: random Protobuf messages with columns that fit them, and what a reader must read from each row.

Under nulls lies what Arrow allows to lie there: values of any kind. Columns are slices of longer ones.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tests.formats.avro.random_columns import DATETIMES, FLOATS, TEXT, UTC, decimals, hiding

INT64 = st.integers(-300, 300) | st.integers(-(2**40), 2**40) | st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-300, 300) | st.integers(-(2**31), 2**31 - 1)
UINT64 = st.integers(0, 300) | st.integers(0, 2**64 - 1)
UINT32 = st.integers(0, 300) | st.integers(0, 2**32 - 1)
DOUBLES = st.just(0.0) | st.just(-0.0) | st.floats(allow_nan=False)
MAX_ITEMS = 3
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
NUMBERS = {"ZERO": 0, "ONE": 1, "MANY": 2_000_000, "LESS": -5, "UNO": 1}
ENUM = "enum E { option allow_alias = true; ZERO = 0; ONE = 1; MANY = 2000000; LESS = -5; UNO = 1; }"
USED = "message Used { google.protobuf.Timestamp a = 1; google.protobuf.Duration b = 2; google.protobuf.BoolValue c = 3; }"
HEAD = """
package random.messages;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
"""


@dataclass(frozen=True)
class Sample:
    """A type of Protobuf, the type of a column, and how to make columns and what is read from them.

    Attributes:
        text: the type in .proto text.
        kind: type of the column.
        values: strategy for a value, which is never None.
        array: makes a column of values.
        read: what the runtime's class takes for a value.
        inside: definitions of messages that the type needs.
        has_map: whether the order of its bytes is open.
    """

    text: str
    kind: pa.DataType
    values: st.SearchStrategy[Any]
    array: Callable[[Sequence[Any]], pa.Array]
    read: Callable[[Any], Any] = lambda value: value
    inside: tuple[str, ...] = ()
    has_map: bool = False

    @property
    def is_sized(self) -> bool:
        return self.text in ("string", "bytes") or self.text[0] in "MCg"


def column_of(rows: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Returns a column of values. pyarrow 19 makes no dictionaries of large strings from Python's values."""
    if not pa.types.is_dictionary(kind):
        return pa.array(rows, kind)
    found = pa.array(rows, kind.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices.cast(kind.index_type), found.dictionary)


def _plain(text: str, kind: pa.DataType, values: st.SearchStrategy[Any], read: Callable[[Any], Any] = lambda one: one) -> Sample:
    return Sample(text, kind, values, lambda rows: column_of(rows, kind), read)


def _seconds(micros: int) -> dict[str, int]:
    return {"seconds": micros // 10**6, "nanos": micros % 10**6 * 1000}


def _timestamp(value: datetime.datetime) -> dict[str, int]:
    return _seconds((value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND)


def _duration(value: datetime.timedelta) -> dict[str, int]:
    micros = value // _MICROSECOND
    found = _seconds(abs(micros))
    return found if micros >= 0 else {name: -one for name, one in found.items()}


def _time(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**9 + value.microsecond * 1000


_IN_UTC = DATETIMES.map(lambda value: value.replace(tzinfo=UTC))
_DURATIONS = st.timedeltas(datetime.timedelta(days=-10_000), datetime.timedelta(days=10_000))

PLAIN: Sequence[Sample] = (
    _plain("bool", pa.bool_(), st.booleans()),
    *(_plain(text, pa.int8(), st.integers(-128, 127)) for text in ("int32", "int64", "sint32", "sfixed64")),
    *(_plain(text, pa.int32(), INT32) for text in ("int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64")),
    *(_plain(text, pa.int64(), INT32) for text in ("int32", "sint32", "sfixed32")),
    *(_plain(text, pa.int64(), UINT32) for text in ("uint32", "fixed32", "uint64", "fixed64")),
    *(_plain(text, pa.int64(), INT64) for text in ("int64", "sint64", "sfixed64")),
    *(_plain(text, pa.uint16(), st.integers(0, 2**16 - 1)) for text in ("int32", "uint32", "sint64", "fixed32")),
    *(_plain(text, pa.uint32(), UINT32) for text in ("uint32", "fixed32", "uint64", "fixed64", "int64")),
    *(_plain(text, pa.uint64(), UINT64) for text in ("uint64", "fixed64")),
    _plain("int32", pa.uint64(), st.integers(0, 2**31 - 1)),
    _plain("float", pa.float32(), FLOATS | st.just(-0.0)),
    _plain("float", pa.float16(), st.floats(allow_nan=False, width=16).map(np.float16), float),  # pyarrow 19 takes no other
    _plain("double", pa.float64(), DOUBLES),
    _plain("double", pa.float32(), FLOATS),
    *(_plain("bytes", kind, st.binary(max_size=20)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    _plain("bytes", pa.binary(3), st.binary(min_size=3, max_size=3)),
    _plain("bytes", pa.string(), TEXT, str.encode),
    *(_plain("string", kind, TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    _plain("string", pa.dictionary(pa.int8(), pa.string()), TEXT),
    _plain("string", pa.decimal128(10, 2), decimals(10, 2), lambda one: format(one, "f")),
    _plain("string", pa.decimal128(38, 20), decimals(38, 20), lambda one: format(one, "f")),
    _plain("string", pa.decimal256(60, 9), decimals(60, 9), lambda one: format(one, "f")),
    *(
        _plain(text, kind, st.dates(), lambda one: (one - _EPOCH.date()).days)
        for text, kind in (("int32", pa.date32()), ("sint64", pa.date64()), ("sfixed32", pa.date32()))
    ),
    _plain("int64", pa.time64("us"), st.times(), _time),
    _plain("fixed64", pa.time64("us"), st.times(), _time),
    _plain("uint64", pa.time32("ms"), st.times().map(lambda time: time.replace(microsecond=7000)), _time),
    _plain("int64", pa.timestamp("us"), DATETIMES, lambda one: (one - _EPOCH) // _MICROSECOND),
    _plain("E", pa.string(), st.sampled_from(list(NUMBERS)), NUMBERS.__getitem__),
    _plain("E", pa.dictionary(pa.int32(), pa.large_string()), st.sampled_from(list(NUMBERS)), NUMBERS.__getitem__),
    _plain("E", pa.int32(), st.sampled_from(list(NUMBERS.values()))),
    _plain("google.protobuf.Timestamp", pa.timestamp("us", "UTC"), _IN_UTC, _timestamp),
    _plain(
        "google.protobuf.Timestamp",
        pa.timestamp("s", "Europe/Berlin"),
        _IN_UTC,
        lambda one: _timestamp(one.replace(microsecond=0)),
    ),
    _plain("google.protobuf.Duration", pa.duration("us"), _DURATIONS, _duration),
    _plain("google.protobuf.Int64Value", pa.int64(), INT64 | st.just(0), lambda one: {"value": one}),
    _plain("google.protobuf.DoubleValue", pa.float64(), DOUBLES, lambda one: {"value": one}),
    _plain("google.protobuf.StringValue", pa.string(), TEXT, lambda one: {"value": one}),
    _plain("google.protobuf.BytesValue", pa.binary(), st.binary(max_size=5), lambda one: {"value": one}),
    _plain("google.protobuf.BoolValue", pa.bool_(), st.booleans(), lambda one: {"value": one}),
)
KEYS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string")


@dataclass
class Names:
    """Makes names that occur once in a schema."""

    used: int = 0

    def new(self) -> str:
        self.used += 1
        return f"M{self.used}"


@dataclass(frozen=True)
class Member:
    """A field of a message, or the fields of a oneof.

    Attributes:
        lines: their declaration.
        kinds: types of the columns by name.
        values: strategy for the values by name, None being null.
        array: makes one of the columns of its values.
        read: what the runtime's class takes for a value that is not None.
        samples: the types.
    """

    lines: str
    kinds: dict[str, pa.DataType]
    values: st.SearchStrategy[dict[str, Any]]
    array: Callable[[str, Sequence[Any]], pa.Array]
    read: Callable[[str, Any], Any]
    samples: tuple[Sample, ...] = field(default=())


def _with_nulls(sample: Sample, rows: Sequence[Any]) -> pa.Array:
    filler = next((row for row in rows if row is not None), None)
    if filler is None:
        return pa.nulls(len(rows), sample.kind)
    full = sample.array([filler if row is None else row for row in rows])
    return full if all(row is not None for row in rows) else hiding(full, [row is not None for row in rows])


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int, proto2: bool) -> Sample:
    """A scalar type, an enum, a message of Protobuf's own, or a message."""
    if depth and draw(st.integers(0, 3)) == 0:
        return draw(messages(names, depth, proto2))
    return draw(st.sampled_from(PLAIN))


@st.composite
def members(draw: st.DrawFn, names: Names, depth: int, proto2: bool, name: str, numbers: list[int]) -> Member:
    form = draw(st.sampled_from(["one", "one", "optional", "repeated", "map", "oneof"]))
    if form == "oneof":
        return draw(_oneofs(names, depth, proto2, name, numbers))
    sample = draw(types(names, depth - 1, proto2))
    number = numbers.pop()
    if form == "repeated":
        return _repeated(
            sample, name, number, draw(st.sampled_from(["", "true", "false"])), draw(st.sampled_from(["list", "large"]))
        )
    if form == "map":
        key = draw(st.sampled_from([one for one in PLAIN if one.text in KEYS and not pa.types.is_dictionary(one.kind)]))
        return _map(key, sample, name, number)
    label = "optional " if form == "optional" or proto2 else ""
    has_presence = bool(label) or sample.text[0] in "Mg"
    values = st.none() | sample.values if has_presence else sample.values
    if proto2 and draw(st.booleans()):
        label, values = "required ", sample.values
    return Member(
        f"{label}{sample.text} {name} = {number};",
        {name: sample.kind},
        values.map(lambda value: {name: value}),
        lambda _, rows: _with_nulls(sample, rows),
        lambda _, value: sample.read(value),
        (sample,),
    )


def _repeated(sample: Sample, name: str, number: int, packed: str, form: str) -> Member:
    option = f" [packed = {packed}]" if packed and not sample.is_sized else ""
    kind = pa.list_(sample.kind) if form == "list" else pa.large_list(sample.kind)

    def array(_: str, rows: Sequence[Any]) -> pa.Array:
        elements = sample.array([item for row in rows for item in row or ()])
        offsets = np.cumsum([0, *(len(row or ()) for row in rows)])
        made = pa.ListArray if form == "list" else pa.LargeListArray
        full = made.from_arrays(pa.array(offsets, pa.int32() if form == "list" else pa.int64()), elements)
        return full if all(row is not None for row in rows) else hiding(full, [row is not None for row in rows])

    return Member(
        f"repeated {sample.text} {name} = {number}{option};",
        {name: kind},
        (st.none() | st.lists(sample.values, max_size=MAX_ITEMS)).map(lambda value: {name: value}),
        array,
        lambda _, value: [sample.read(one) for one in value],
        (sample,),
    )


def _map(key: Sample, sample: Sample, name: str, number: int) -> Member:
    def array(_: str, rows: Sequence[Any]) -> pa.Array:
        keys = key.array([one for row in rows for one in row or ()])
        values = sample.array([one for row in rows for one in (row or {}).values()])
        offsets = np.cumsum([0, *(len(row or ()) for row in rows)])
        full = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values)
        return full if all(row is not None for row in rows) else hiding(full, [row is not None for row in rows])

    return Member(
        f"map<{key.text}, {sample.text}> {name} = {number};",
        {name: pa.map_(key.kind, sample.kind)},
        (st.none() | st.dictionaries(key.values, sample.values, max_size=MAX_ITEMS)).map(lambda value: {name: value}),
        array,
        lambda _, value: {key.read(one): sample.read(other) for one, other in value.items()},
        (Sample("", pa.null(), st.none(), pa.array, has_map=True), sample),
    )


@st.composite
def _oneofs(draw: st.DrawFn, names: Names, depth: int, proto2: bool, name: str, numbers: list[int]) -> Member:
    samples = {f"{name}_{number}": draw(types(names, depth - 1, proto2)) for number in range(draw(st.integers(1, 3)))}
    lines = " ".join(f"{sample.text} {own} = {numbers.pop()};" for own, sample in samples.items())
    nothing = dict.fromkeys(samples)

    def alone(own: str) -> st.SearchStrategy[dict[str, Any]]:
        return samples[own].values.map(lambda value: {**nothing, own: value})

    return Member(
        f"oneof {name}_oneof {{ {lines} }}",
        {own: sample.kind for own, sample in samples.items()},
        st.one_of(st.just(nothing), *map(alone, samples)),
        lambda own, rows: _with_nulls(samples[own], rows),
        lambda own, value: samples[own].read(value),
        tuple(samples.values()),
    )


@st.composite
def messages(draw: st.DrawFn, names: Names, depth: int, proto2: bool) -> Sample:
    """A message. Its columns may have another order than its fields, and fields may have no column."""
    count = draw(st.integers(0, 4))
    numbers = draw(st.lists(st.integers(1, 40) | st.integers(16_000, 18_000), min_size=20, max_size=20, unique=True))
    fields = [draw(members(names, depth, proto2, f"f{number}", numbers)) for number in range(count)]
    kinds = {name: (member, kind) for member in fields for name, kind in member.kinds.items()}
    columns = draw(st.permutations(list(kinds)))
    kind = pa.struct([pa.field(name, kinds[name][1]) for name in columns])
    name = names.new()
    own = [member.lines for member in fields]
    if draw(st.booleans()):
        own.append(f"optional string without_a_column = {numbers.pop()};")
    inside = [text for member in fields for sample in member.samples for text in sample.inside]

    def array(rows: Sequence[Any]) -> pa.Array:
        if not columns:
            return pa.array([{}] * len(rows), kind)
        children = [kinds[name][0].array(name, [row[name] for row in rows]) for name in columns]
        return pa.StructArray.from_arrays(children, fields=list(kind))

    def read(row: dict[str, Any]) -> dict[str, Any]:
        return {name: kinds[name][0].read(name, value) for name, value in row.items() if value is not None}

    return Sample(
        name,
        kind,
        st.tuples(*(member.values for member in fields)).map(
            lambda rows: {name: one for row in rows for name, one in row.items()}
        ),
        array,
        read,
        (*inside, "\n  ".join([f"message {name} {{", *own, "}"])),
        any(sample.has_map for member in fields for sample in member.samples),
    )


@st.composite
def tables(draw: st.DrawFn, depth: int = 2) -> tuple[str, Sample, list[Any], pa.Array]:
    """The text of a schema, a message, rows of it (None: a tombstone), and the column."""
    proto2 = draw(st.booleans())
    sample = draw(messages(Names(), depth, proto2))
    row = st.none() | sample.values if draw(st.booleans()) else sample.values
    rows = draw(st.lists(row, min_size=1, max_size=6))
    text = "\n".join(
        [
            f'syntax = "{"proto2" if proto2 else "proto3"}";{HEAD}{ENUM}',
            *sample.inside,
            USED if not proto2 else USED.replace(" google", " optional google"),
        ]
    )
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 2))
    if all(one is None for one in rows):
        return text, sample, rows, pa.nulls(len(rows), sample.kind)
    filler = next(one for one in rows if one is not None)
    full = _with_nulls(sample, [filler] * before + rows + [filler] * after)
    return text, sample, rows, full.slice(before, len(rows))
