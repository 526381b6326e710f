"""The codec, which builds a reader and a writer for each message class and version from the fields' declarations, once."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError, UsageError
from spark_kafka_sink.protocol.fields import (
    ArrayOf,
    Buffer,
    BytesType,
    FixedType,
    Message,
    RecordsType,
    StringType,
    UuidType,
    WireField,
    WireType,
    wire_fields,
)
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
    check_fits,
    fixed_codec,
    malformed,
    number_array_codec,
    read_unsigned_varint,
    records_codec,
    string_codec,
    uuid_codec,
    write_unsigned_varint,
)

# Tagged fields (KIP-482). Unknown ones are skipped, because nothing here forwards messages.

_ONE_BYTE = 0x80  # a varint below it has no more bytes


class TaggedField(NamedTuple):
    tag: int
    name: str
    default: Any
    codec: Codec


class TaggedFieldsCodec(NamedTuple):
    """The codec. `read` sets the fields on a message that has its defaults, and returns the offset after them."""

    read: Callable[[memoryview, int, Message], int]
    write: Callable[[MessageWriter, Message], None]


def tagged_fields_codec(known: Sequence[TaggedField]) -> TaggedFieldsCodec:
    by_tag = {field.tag: field for field in known}

    def read(data: memoryview, offset: int, message: Message) -> int:
        count, offset = read_unsigned_varint(data, offset)
        check_fits(data, offset, 2 * count, "tagged fields")
        end, found = len(data), set[int]()
        for _ in range(count):
            # Skipping one must be cheap: a peer may send a million, and an object of each would take fifty times their size.
            tag, size = data[offset], data[offset + 1]
            if tag < _ONE_BYTE and size < _ONE_BYTE:
                offset += 2
            else:
                tag, offset = read_unsigned_varint(data, offset)
                size, offset = read_unsigned_varint(data, offset)
            if size > end - offset:
                check_fits(data, offset, size, f"a tagged field (tag {tag})")
            if tag in by_tag:
                if tag in found:
                    raise MalformedError(f"tag {tag} twice")
                found.add(tag)
                setattr(message, by_tag[tag].name, _read_known(by_tag[tag], data[offset : offset + size]))
            offset += size
        return offset

    def write(out: MessageWriter, message: Message) -> None:
        encoded = _encode_known(known, message)
        write_unsigned_varint(out.tail, len(encoded))
        for tag, content in sorted(encoded):
            write_unsigned_varint(out.tail, tag)
            write_unsigned_varint(out.tail, len(content))
            out.tail += content

    return TaggedFieldsCodec(read, write)


def _read_known(field: TaggedField, content: memoryview) -> Any:
    values: list[Any] = []
    try:
        end = field.codec.read(content, 0, values)
    except UNREADABLE as error:
        raise malformed(error).inside(field.name) from None
    if end != len(content):
        raise MalformedError(f"{len(content) - end:,} unexpected bytes", field.name)
    return values[0]


def _encode_known(known: Sequence[TaggedField], message: Message) -> list[tuple[int, bytes]]:
    """Encodes declared fields. A default is not sent, because it is what a missing field means."""
    encoded = []
    for field in known:
        value = getattr(message, field.name)
        if value != field.default:
            out = MessageWriter()
            field.codec.write(out, value)
            encoded.append((field.tag, bytes(out.tail)))
    return encoded


# Messages


@functools.cache
def message_codec(cls: type, version: int, flexible: bool) -> Codec:
    """Returns the codec of a message class (a body, a header or a nested struct) in one version."""
    fields = wire_fields(cls)
    untagged = [field for field in fields if field.wire.tag is None]
    steps = list[Codec]()  # of one or more fields: they read values, and write from the message
    for kind, run in groupby(untagged, lambda f: _kind(f, version)):
        if kind == "absent":
            steps.append(_absent_step(list(run), version))
        elif kind == "fixed":
            steps.append(_fixed_step(list(run)))
        else:
            steps += [_value_step(field, version, flexible) for field in run]
    tagged = [
        TaggedField(field.wire.tag, field.name, field.default, _field_codec(field, version, flexible=True))
        for field in fields
        if field.wire.tag is not None and field.is_in(version)
    ]
    tags = tagged_fields_codec(tagged) if flexible else None
    read = _message_reader(cls, [field.name for field in untagged], steps, tags)
    min_size = sum(step.min_size for step in steps) + flexible
    return Codec(_usual_reader(cls, untagged, version, flexible, read), _message_writer(steps, tags), min_size)


def _message_reader(cls: type[Message], names: Sequence[str], steps: Sequence[Codec], tags: TaggedFieldsCodec | None) -> Reader:
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


def _usual_reader(cls: type[Message], untagged: Sequence[WireField], version: int, flexible: bool, read: Reader) -> Reader:
    """Returns a reader that takes the usual form of a struct at once, and leaves any other to `read`.

    Nearly every message has it: numbers, then defaults, and no tagged fields. A successful partition of a Produce response takes
    a quarter of the instructions. Equal bytes have equal values, because reading depends on nothing else. A struct that does not
    begin with numbers, or has other fields without a default, has no such form.
    """
    is_first = [isinstance(field.wire.type, FixedType) and field.is_in(version) for field in untagged]
    count = is_first.index(False) if False in is_first else len(untagged)
    others = [field for field in untagged[count:] if field.is_in(version)]
    if not count or not (others or flexible) or any(field.default is MISSING for field in others):
        return read
    out = MessageWriter()
    try:
        for field in others:
            _field_codec(field, version, flexible).write(out, field.default)
    except UnwritableError:  # null, which this version cannot carry
        return read
    end = b"".join(out.buffers()) + (b"\0" if flexible else b"")
    codes = "".join(field.wire.type.code for field in untagged[:count] if isinstance(field.wire.type, FixedType))
    defaults, numbers = [field.default for field in untagged[count:]], struct.Struct(f">{codes}")
    unpack, size, whole = numbers.unpack_from, numbers.size, numbers.size + len(end)

    def read_usual(data: memoryview, offset: int, into: list[Any]) -> int:
        if data[offset + size : offset + whole] == end:
            into.append(cls(*unpack(data, offset), *defaults))
            return offset + whole
        return read(data, offset, into)

    return read_usual


def _message_writer(steps: Sequence[Codec], tags: TaggedFieldsCodec | None) -> Callable[[MessageWriter, Any], None]:
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


def _absent_step(fields: list[WireField], version: int) -> Codec:
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

    return Codec(read, write, 0)


def _fixed_step(fields: list[WireField]) -> Codec:
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

    return Codec(read, write, packer.size)


def _misfit(names: Sequence[str], codes: str, values: Sequence[Any]) -> str:
    """Returns the name of the first field whose value does not fit."""
    return next(name for name, code, value in zip(names, codes, values, strict=True) if not _fits(code, value))


def _fits(code: str, value: Any) -> bool:
    try:
        struct.pack(f">{code}", value)
    except struct.error:
        return False
    return True


def _value_step(field: WireField, version: int, flexible: bool) -> Codec:
    codec = _field_codec(field, version, flexible)
    value_of = attrgetter(field.name)

    def write(out: MessageWriter, message: Message) -> None:
        try:
            codec.write(out, value_of(message))
        except UnwritableError as error:
            raise error.inside(field.name) from None

    return Codec(codec.read, write, codec.min_size)


def _field_codec(field: WireField, version: int, flexible: bool) -> Codec:
    return value_codec(field.wire.type, version, flexible, nullable=version >= field.wire.nullable_since)


def value_codec(wire_type: WireType, version: int, flexible: bool, nullable: bool) -> Codec:
    """Returns the codec of a wire type, with classic or compact lengths depending on the version."""
    length = COMPACT_LENGTH if flexible else INT32_LENGTH
    match wire_type:
        case FixedType():
            return fixed_codec(wire_type)
        case StringType(always_classic=always_classic):
            return string_codec(INT16_LENGTH if always_classic or not flexible else COMPACT_LENGTH, nullable)
        case BytesType():
            return bytes_codec(length, nullable)
        case RecordsType():
            return records_codec(length, nullable)
        case UuidType():
            return uuid_codec()
        case ArrayOf(element=FixedType(code=code)):
            return number_array_codec(code, length, nullable)
        case ArrayOf(element=element):
            return array_codec(value_codec(element, version, flexible, nullable=False), length, nullable)
        case _:
            return message_codec(wire_type, version, flexible)


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
