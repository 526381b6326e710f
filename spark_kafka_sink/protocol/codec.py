"""The codec, which builds a reader and a writer for each message class and version from the fields' declarations, once."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError, UsageError
from spark_kafka_sink.protocol.fields import Message, WireField, wire_fields
from spark_kafka_sink.protocol.tagged_fields import TaggedField, TaggedFieldsCodec, tagged_fields_codec
from spark_kafka_sink.protocol.values import (
    COMPACT_LENGTH,
    INT16_LENGTH,
    INT32_LENGTH,
    UNREADABLE,
    Codec,
    MalformedError,
    MessageWriter,
    Reader,
    UnwritableError,
    array_codec,
    bytes_codec,
    fixed_codec,
    malformed,
    number_array_codec,
    records_codec,
    string_codec,
    uuid_codec,
)
from spark_kafka_sink.protocol.wire_types import (
    ArrayOf,
    Buffer,
    BytesType,
    FixedType,
    RecordsType,
    StringType,
    UuidType,
    WireType,
)

StepWriter: TypeAlias = Callable[[MessageWriter, Message], None]


class Step(NamedTuple):
    """A part of a message. `read` appends the values of one or more fields, `write` takes them from the message."""

    read: Reader
    write: StepWriter
    min_size: int


@functools.cache
def message_codec(cls: type, version: int, flexible: bool) -> Codec:
    """Returns the codec of a message class (a body, a header or a nested struct) in one version."""
    fields = wire_fields(cls)
    untagged = [field for field in fields if field.wire.tag is None]
    steps = [
        step
        for kind, run in groupby(untagged, lambda f: _kind(f, version))
        for step in _steps(kind, list(run), version, flexible)
    ]
    tags = tagged_fields_codec(_tagged_fields(fields, version)) if flexible else None
    min_size = sum(step.min_size for step in steps) + flexible
    names = [field.name for field in untagged]
    read = _message_reader(cls, names, steps, tags)
    usual = _usual_form(untagged, version, flexible)
    return Codec(read if usual is None else _usual_reader(cls, usual, read), _message_writer(steps, tags), min_size)


def _message_reader(cls: type[Message], names: Sequence[str], steps: Sequence[Step], tags: TaggedFieldsCodec | None) -> Reader:
    reads = [step.read for step in steps]

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        values: list[Any] = []
        try:
            for step in reads:
                offset = step(data, offset, values)
            message = cls(*values)
            if tags is not None:
                # Nearly every struct ends with one zero byte: no tagged fields.
                offset = tags.read(data, offset, message) if data[offset] else offset + 1
        except UNREADABLE as error:
            # The number of values read so far identifies the field that failed, at no cost while nothing fails.
            raise malformed(error).inside([*names, "tagged_fields"][len(values)]) from None
        into.append(message)
        return offset

    return read


class UsualForm(NamedTuple):
    """A struct as nearly every message has it: numbers, then defaults. `end`: the encoded defaults, and no tagged fields."""

    numbers: struct.Struct
    end: bytes
    defaults: Sequence[Any]


def _usual_form(untagged: Sequence[WireField], version: int, flexible: bool) -> UsualForm | None:
    """Returns the usual form of a struct; None if it does not begin with numbers or has other fields without a default."""
    is_first = [isinstance(field.wire.type, FixedType) and field.is_in(version) for field in untagged]
    count = is_first.index(False) if False in is_first else len(untagged)
    others = [field for field in untagged[count:] if field.is_in(version)]
    if not count or not (others or flexible) or any(field.default is MISSING for field in others):
        return None
    out = MessageWriter()
    try:
        for field in others:
            _field_codec(field, version, flexible).write(out, field.default)
    except UnwritableError:  # null, which this version cannot carry
        return None
    end = b"".join(out.buffers()) + (b"\0" if flexible else b"")
    codes = "".join(field.wire.type.code for field in untagged[:count] if isinstance(field.wire.type, FixedType))
    return UsualForm(struct.Struct(f">{codes}"), end, [field.default for field in untagged[count:]])


def _usual_reader(cls: type[Message], usual: UsualForm, read: Reader) -> Reader:
    """Returns a reader that takes the usual form at once, and leaves any other to `read`.

    A successful partition of a Produce response takes a quarter of the instructions. Equal bytes have equal values, because
    reading depends on nothing else.
    """
    numbers, end, defaults = usual
    unpack, size, whole = numbers.unpack_from, numbers.size, numbers.size + len(end)

    def read_usual(data: memoryview, offset: int, into: list[Any]) -> int:
        if data[offset + size : offset + whole] == end:
            into.append(cls(*unpack(data, offset), *defaults))
            return offset + whole
        return read(data, offset, into)

    return read_usual


def _message_writer(steps: Sequence[Step], tags: TaggedFieldsCodec | None) -> Callable[[MessageWriter, Any], None]:
    writes = [step.write for step in steps]
    if tags is not None:
        writes.append(tags.write)

    def write(out: MessageWriter, message: Message) -> None:
        for step in writes:
            step(out, message)

    return write


def _kind(field: WireField, version: int) -> str:
    if not field.is_in(version):
        return "absent"
    return "fixed" if isinstance(field.wire.type, FixedType) else "value"


def _steps(kind: str, fields: list[WireField], version: int, flexible: bool) -> Iterable[Step]:
    if kind == "absent":
        return [_absent_step(fields, version)]
    if kind == "fixed":
        return [_fixed_step(fields)]
    return [_value_step(field, version, flexible) for field in fields]


def _absent_step(fields: list[WireField], version: int) -> Step:
    """Returns the step for fields that the version lacks: it reads defaults and refuses to write any other value."""
    defaults = [field.default for field in fields]
    carried = [field for field in fields if not field.wire.ignorable]

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        into.extend(defaults)
        return offset

    def write(out: MessageWriter, message: Message) -> None:
        for field in carried:
            value = getattr(message, field.name)
            if value != field.default:
                raise UnsupportedVersionError(
                    f"{type(message).__name__} v{version} has no field {field.name}, so the value {value!r} cannot be sent",
                    field=field.name,
                    version=version,
                )

    return Step(read, write, 0)


def _fixed_step(fields: list[WireField]) -> Step:
    """Returns one call of the struct module for neighbours of fixed size, which takes a third of the time of single calls."""
    codes = "".join(field.wire.type.code for field in fields if isinstance(field.wire.type, FixedType))
    packer = struct.Struct(f">{codes}")
    names = [field.name for field in fields]
    getter = attrgetter(*names)
    values_of = getter if len(names) > 1 else lambda message: (getter(message),)

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        into.extend(packer.unpack_from(data, offset))
        return offset + packer.size

    def write(out: MessageWriter, message: Message) -> None:
        try:
            out.tail += packer.pack(*values_of(message))
        except struct.error as error:
            raise UnwritableError(str(error), _misfit(names, codes, values_of(message))) from None

    return Step(read, write, packer.size)


def _misfit(names: Sequence[str], codes: str, values: Sequence[Any]) -> str:
    """Returns the name of the first field whose value does not fit."""
    return next(name for name, code, value in zip(names, codes, values, strict=True) if not _fits(code, value))


def _fits(code: str, value: Any) -> bool:
    try:
        struct.pack(f">{code}", value)
    except struct.error:
        return False
    return True


def _value_step(field: WireField, version: int, flexible: bool) -> Step:
    codec = _field_codec(field, version, flexible)
    value_of = attrgetter(field.name)

    def write(out: MessageWriter, message: Message) -> None:
        try:
            codec.write(out, value_of(message))
        except UnwritableError as error:
            raise error.inside(field.name) from None

    return Step(codec.read, write, codec.min_size)


def _tagged_fields(fields: Iterable[WireField], version: int) -> list[TaggedField]:
    return [
        TaggedField(field.wire.tag, field.name, field.default, _field_codec(field, version, flexible=True))
        for field in fields
        if field.wire.tag is not None and field.is_in(version)
    ]


def _field_codec(field: WireField, version: int, flexible: bool) -> Codec:
    return value_codec(field.wire.type, version, flexible, nullable=version >= field.wire.nullable_since)


def value_codec(wire_type: WireType, version: int, flexible: bool, nullable: bool) -> Codec:
    """Returns the codec of a wire type, with classic or compact lengths depending on the version."""
    match wire_type:
        case FixedType():
            return fixed_codec(wire_type)
        case StringType(always_classic=always_classic):
            return string_codec(INT16_LENGTH if always_classic or not flexible else COMPACT_LENGTH, nullable)
        case BytesType():
            return bytes_codec(COMPACT_LENGTH if flexible else INT32_LENGTH, nullable)
        case RecordsType():
            return records_codec(COMPACT_LENGTH if flexible else INT32_LENGTH, nullable)
        case UuidType():
            return uuid_codec()
        case ArrayOf(element=element):
            return _array_codec(element, version, flexible, nullable)
        case _:
            return message_codec(wire_type, version, flexible)


def _array_codec(element: WireType, version: int, flexible: bool, nullable: bool) -> Codec:
    length = COMPACT_LENGTH if flexible else INT32_LENGTH
    if isinstance(element, FixedType):
        return number_array_codec(element.code, length, nullable)
    return array_codec(value_codec(element, version, flexible, nullable=False), length, nullable)


def write_parts(what: str, *parts: tuple[Codec, Message]) -> list[Buffer]:
    """Returns the parts as buffers, in order. Raises UsageError, which names `what`, if a value does not fit its field."""
    out = MessageWriter()
    try:
        for codec, message in parts:
            codec.write(out, message)
    except UnwritableError as error:
        raise UsageError(f"{what} cannot be encoded: {error}") from None
    return out.buffers()


def read_part(codec: Codec, data: memoryview, offset: int, what: str) -> tuple[Any, int]:
    """Returns the value at `offset` and the offset after it. Raises ProtocolError, which names `what`, if there is none."""
    values: list[Any] = []
    try:
        offset = codec.read(data, offset, values)
    except MalformedError as error:
        raise ProtocolError(f"{what} of {counted(len(data), 'byte')} cannot be decoded: {error}") from None
    return values[0], offset
