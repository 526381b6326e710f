"""Readers and writers of single values and arrays: varints, lengths, strings, ids, records; and what goes wrong in them.

A reader takes the data and an offset, appends one value to `into` and returns the offset behind it. No length is believed
before it is held against the bytes that are there. Errors carry the path of fields;
codec.py turns them into those of errors.py.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

from spark_kafka_sink.protocol.wire_types import Buffer, FixedType, Records


class LocatedError(ValueError):
    """`path` grows from the inner field to the outer ones while the error rises."""

    def __init__(self, cause: str, path: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.path = path

    def inside(self, name: str) -> Self:
        return type(self)(self.cause, f"{name}.{self.path}" if self.path else name)

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}" if self.path else self.cause


class MalformedError(LocatedError):
    """Bytes that are no message."""


class UnwritableError(LocatedError):
    """A value that its field cannot carry."""


UNREADABLE: Final = (MalformedError, struct.error, IndexError, UnicodeDecodeError)
"""All that a reader raises on hostile bytes: struct.error and IndexError where the data ends too early."""


def malformed(error: Exception) -> MalformedError:
    """Any of UNREADABLE as a MalformedError."""
    if isinstance(error, MalformedError):
        return error
    if isinstance(error, UnicodeDecodeError):
        return MalformedError(f"not UTF-8: {error.reason}")
    return MalformedError("the data ends here")


class MessageWriter:
    """Collects a message as buffers: `tail` takes the small parts, records stand between them as they were given."""

    __slots__ = ("_parts", "tail")

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self.tail = bytearray()

    def splice(self, records: Records) -> None:
        self._parts.append(self.tail)
        self._parts.extend(records)
        self.tail = bytearray()

    def buffers(self) -> list[Buffer]:
        """Everything written, in order."""
        return [*self._parts, self.tail] if self.tail else self._parts


Reader: TypeAlias = Callable[[memoryview, int, list[Any]], int]
Writer: TypeAlias = Callable[[MessageWriter, Any], None]
LengthReader: TypeAlias = Callable[[memoryview, int], tuple[int, int]]
LengthWriter: TypeAlias = Callable[[bytearray, int], None]


class Codec(NamedTuple):
    """How one wire type is read and written in one version; `min_size`: the fewest bytes a value can take."""

    read: Reader
    write: Writer
    min_size: int


class LengthCodec(NamedTuple):
    """How a length is read and written; -1 stands for null."""

    read: LengthReader
    write: LengthWriter
    min_size: int


_VARINT_MORE = 0x80
_UNSIGNED_VARINT_MAX_SHIFT = 28
_UINT32_MAX = 0xFFFFFFFF


def read_unsigned_varint(data: memoryview, offset: int) -> tuple[int, int]:
    """An unsigned 32-bit varint and the offset behind it."""
    value = 0
    for shift in range(0, _UNSIGNED_VARINT_MAX_SHIFT + 1, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < _VARINT_MORE:
            if value > _UINT32_MAX:
                break
            return value, offset
    raise MalformedError("a varint of more than 32 bits")


def write_unsigned_varint(tail: bytearray, value: int) -> None:
    while value >= _VARINT_MORE:
        tail.append((value & 0x7F) | _VARINT_MORE)
        value >>= 7
    tail.append(value)


def check_fits(data: memoryview, offset: int, size: int, what: str) -> None:
    """`size` bytes from `offset` on are there. To be asked before anything of that size is made."""
    left = len(data) - offset
    if size > left:
        raise MalformedError(f"{size:,} bytes for {what} where {left:,} are left")


def _read_compact_length(data: memoryview, offset: int) -> tuple[int, int]:
    length = data[offset]
    if length < _VARINT_MORE:
        return length - 1, offset + 1
    length, offset = read_unsigned_varint(data, offset)
    return length - 1, offset


def _write_compact_length(tail: bytearray, length: int) -> None:
    write_unsigned_varint(tail, length + 1)


def _classic_length(code: str, limit: int) -> LengthCodec:
    packer = struct.Struct(f">{code}")

    def read(data: memoryview, offset: int) -> tuple[int, int]:
        (length,) = packer.unpack_from(data, offset)
        if length < -1:
            raise MalformedError(f"a length of {length:,}")
        return length, offset + packer.size

    def write(tail: bytearray, length: int) -> None:
        if length > limit:
            raise UnwritableError(f"a length of {length:,} is over the limit of {limit:,}")
        tail += packer.pack(length)

    return LengthCodec(read, write, packer.size)


COMPACT_LENGTH = LengthCodec(_read_compact_length, _write_compact_length, 1)
INT16_LENGTH = _classic_length("h", 2**15 - 1)
INT32_LENGTH = _classic_length("i", 2**31 - 1)


def fixed_codec(fixed: FixedType) -> Codec:
    packer = struct.Struct(f">{fixed.code}")

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        into.append(packer.unpack_from(data, offset)[0])
        return offset + packer.size

    def write(out: MessageWriter, value: Any) -> None:
        out.tail += packer.pack(value)

    return Codec(read, write, packer.size)


def string_codec(length: LengthCodec, nullable: bool) -> Codec:
    read_length, write_length, min_size = length

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        size, offset = read_length(data, offset)
        if size < 0:
            if not nullable:
                raise MalformedError("null where a string must be")
            into.append(None)
            return offset
        check_fits(data, offset, size, "a string")
        into.append(str(data[offset : offset + size], "utf-8"))
        return offset + size

    def write(out: MessageWriter, value: str | None) -> None:
        if value is None:
            if not nullable:
                raise UnwritableError("None where a string must be")
            write_length(out.tail, -1)
            return
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise UnwritableError(f"not to be written as UTF-8: {error.reason}") from None
        write_length(out.tail, len(encoded))
        out.tail += encoded

    return Codec(read, write, min_size)


def bytes_codec(length: LengthCodec, nullable: bool) -> Codec:
    """Reads a copy as bytes; writes a copy of any buffer."""
    read_length, write_length, min_size = length

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        size, offset = read_length(data, offset)
        if size < 0:
            if not nullable:
                raise MalformedError("null where bytes must be")
            into.append(None)
            return offset
        check_fits(data, offset, size, "bytes")
        into.append(bytes(data[offset : offset + size]))
        return offset + size

    def write(out: MessageWriter, value: Buffer | None) -> None:
        if value is None:
            if not nullable:
                raise UnwritableError("None where bytes must be")
            write_length(out.tail, -1)
            return
        write_length(out.tail, len(value))
        out.tail += value

    return Codec(read, write, min_size)


def records_codec(length: LengthCodec, nullable: bool) -> Codec:
    """Reads a view of the data; writes the very buffers."""
    read_length, write_length, min_size = length

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        size, offset = read_length(data, offset)
        if size < 0:
            if not nullable:
                raise MalformedError("null where records must be")
            into.append(None)
            return offset
        check_fits(data, offset, size, "records")
        into.append((data[offset : offset + size],))
        return offset + size

    def write(out: MessageWriter, records: Records | None) -> None:
        if records is None:
            if not nullable:
                raise UnwritableError("None where records must be")
            write_length(out.tail, -1)
            return
        write_length(out.tail, sum(map(len, records)))
        out.splice(records)

    return Codec(read, write, min_size)


def uuid_codec() -> Codec:
    size = 16

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        check_fits(data, offset, size, "a uuid")
        into.append(uuid.UUID(bytes=bytes(data[offset : offset + size])))
        return offset + size

    def write(out: MessageWriter, value: uuid.UUID) -> None:
        out.tail += value.bytes

    return Codec(read, write, size)


ItemsReader: TypeAlias = Callable[[memoryview, int, int], tuple[tuple[Any, ...], int]]
"""(data, offset, count) to the elements and the offset behind them."""
ItemsWriter: TypeAlias = Callable[[MessageWriter, Sequence[Any]], None]


def array_codec(item: Codec, length: LengthCodec, nullable: bool) -> Codec:
    """Elements of any kind; read as a tuple."""
    read_item, write_item, min_size = item

    def read_items(data: memoryview, offset: int, count: int) -> tuple[tuple[Any, ...], int]:
        items: list[Any] = []
        for _ in range(count):
            offset = read_item(data, offset, items)
        return tuple(items), offset

    def write_items(out: MessageWriter, items: Sequence[Any]) -> None:
        for value in items:
            write_item(out, value)

    return _counted(read_items, write_items, min_size, length, nullable)


def number_array_codec(code: str, length: LengthCodec, nullable: bool) -> Codec:
    """Numbers of one fixed size, by their letter in the struct module; read as a tuple."""
    size = struct.calcsize(f">{code}")

    def read_items(data: memoryview, offset: int, count: int) -> tuple[tuple[Any, ...], int]:
        return struct.unpack_from(f">{count}{code}", data, offset), offset + count * size

    def write_items(out: MessageWriter, items: Sequence[Any]) -> None:
        try:
            out.tail += struct.pack(f">{len(items)}{code}", *items)
        except struct.error as error:
            raise UnwritableError(f"an element does not fit: {error}") from None

    return _counted(read_items, write_items, size, length, nullable)


def _counted(read_items: ItemsReader, write_items: ItemsWriter, min_size: int, length: LengthCodec, nullable: bool) -> Codec:
    read_length, write_length, length_size = length

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        count, offset = read_length(data, offset)
        if count > 0:
            check_fits(data, offset, count * min_size, f"an array of {count:,}")
            items, offset = read_items(data, offset, count)
            into.append(items)
        elif count == 0:
            into.append(())
        elif nullable:
            into.append(None)
        else:
            raise MalformedError("null where an array must be")
        return offset

    def write(out: MessageWriter, items: Sequence[Any] | None) -> None:
        if items is not None:
            write_length(out.tail, len(items))
            write_items(out, items)
        elif nullable:
            write_length(out.tail, -1)
        else:
            raise UnwritableError("None where an array must be")

    return Codec(read, write, length_size)
