"""Readers and writers of single values and arrays (varints, lengths, strings, ids, records), and their errors.

A reader takes the data and an offset, appends one value to `into` and returns the offset after it. No length is trusted
before it is held against the bytes that are there. Errors carry the path of fields;
codec.py turns them into those of errors.py.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

from spark_kafka_sink.counts import counted
from spark_kafka_sink.protocol.fields import Buffer, FixedType, Records


class LocatedError(ValueError):
    """An error at a field. `path` grows from the inner field to the outer ones as the error propagates."""

    def __init__(self, cause: str, path: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.path = path

    def inside(self, name: str) -> Self:
        return type(self)(self.cause, f"{name}.{self.path}" if self.path else name)

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}" if self.path else self.cause


class MalformedError(LocatedError):
    """Bytes that are not a valid message."""


class UnwritableError(LocatedError):
    """A value that does not fit its field."""


UNREADABLE: Final = (MalformedError, struct.error, IndexError, UnicodeDecodeError)
"""The errors that readers raise for hostile bytes. struct.error and IndexError mean that the data ends too early."""


def malformed(error: Exception) -> MalformedError:
    """Returns a MalformedError for an error in UNREADABLE."""
    if isinstance(error, MalformedError):
        return error
    if isinstance(error, UnicodeDecodeError):
        return MalformedError(f"not valid UTF-8: {error.reason}")
    return MalformedError("unexpected end of data")


class MessageWriter:
    """Collects a message as buffers. `tail` takes the small parts; records stay in separate buffers, which are not copied."""

    __slots__ = ("_parts", "tail")

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self.tail = bytearray()

    def splice(self, records: Records) -> None:
        self._parts.append(self.tail)
        self._parts.extend(records)
        self.tail = bytearray()

    def buffers(self) -> list[Buffer]:
        """Returns all written buffers, in order."""
        return [*self._parts, self.tail] if self.tail else self._parts


Reader: TypeAlias = Callable[[memoryview, int, list[Any]], int]
Writer: TypeAlias = Callable[[MessageWriter, Any], None]
LengthReader: TypeAlias = Callable[[memoryview, int], tuple[int, int]]
LengthWriter: TypeAlias = Callable[[bytearray, int], None]


class Codec(NamedTuple):
    """The reader and writer of one wire type in one version. `min_size`: the minimum size of a value in bytes."""

    read: Reader
    write: Writer
    min_size: int


class LengthCodec(NamedTuple):
    """The reader and writer of a length. -1 stands for null."""

    read: LengthReader
    write: LengthWriter
    min_size: int


_VARINT_MORE = 0x80
_UNSIGNED_VARINT_MAX_SHIFT = 28
_UINT32_MAX = 0xFFFFFFFF


def read_unsigned_varint(data: memoryview, offset: int) -> tuple[int, int]:
    """Returns an unsigned 32-bit varint and the offset after it."""
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
    # Without a loop up to three bytes, which hold the size of a batch: a third of the instructions.
    if value < 1 << 7:
        tail.append(value)
    elif value < 1 << 14:
        tail += bytes((value & 0x7F | _VARINT_MORE, value >> 7))
    elif value < 1 << 21:
        tail += bytes((value & 0x7F | _VARINT_MORE, value >> 7 & 0x7F | _VARINT_MORE, value >> 14))
    else:
        while value >= _VARINT_MORE:
            tail.append((value & 0x7F) | _VARINT_MORE)
            value >>= 7
        tail.append(value)


def check_fits(data: memoryview, offset: int, size: int, what: str) -> None:
    """Raises MalformedError if fewer than `size` bytes follow `offset`. Call it before allocating memory of that size."""
    left = len(data) - offset
    if size > left:
        raise MalformedError(f"{counted(size, 'byte')} for {what}, but only {counted(left, 'is', 'are')} left")


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
            raise MalformedError(f"{length:,} is not a valid length")
        return length, offset + packer.size

    def write(tail: bytearray, length: int) -> None:
        if length > limit:
            raise UnwritableError(f"the length {length:,} exceeds the limit of {limit:,}")
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
                raise MalformedError("null is not a valid string")
            into.append(None)
            return offset
        check_fits(data, offset, size, "a string")
        into.append(str(data[offset : offset + size], "utf-8"))
        return offset + size

    def write(out: MessageWriter, value: str | None) -> None:
        if value is None:
            if not nullable:
                raise UnwritableError("None is not a valid string")
            write_length(out.tail, -1)
            return
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise UnwritableError(f"cannot be encoded as UTF-8: {error.reason}") from None
        write_length(out.tail, len(encoded))
        out.tail += encoded

    return Codec(read, write, min_size)


def bytes_codec(length: LengthCodec, nullable: bool) -> Codec:
    """The codec of bytes. It reads a copy as bytes and writes a copy of any buffer."""
    read_length, write_length, min_size = length

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        size, offset = read_length(data, offset)
        if size < 0:
            if not nullable:
                raise MalformedError("null is not valid for bytes")
            into.append(None)
            return offset
        check_fits(data, offset, size, "bytes")
        into.append(bytes(data[offset : offset + size]))
        return offset + size

    def write(out: MessageWriter, value: Buffer | None) -> None:
        if value is None:
            if not nullable:
                raise UnwritableError("None is not valid for bytes")
            write_length(out.tail, -1)
            return
        write_length(out.tail, len(value))
        out.tail += value

    return Codec(read, write, min_size)


def records_codec(length: LengthCodec, nullable: bool) -> Codec:
    """The codec of records. It reads a view of the data and writes the same buffers without copying."""
    read_length, write_length, min_size = length

    def read(data: memoryview, offset: int, into: list[Any]) -> int:
        size, offset = read_length(data, offset)
        if size < 0:
            if not nullable:
                raise MalformedError("null is not valid for records")
            into.append(None)
            return offset
        check_fits(data, offset, size, "records")
        into.append((data[offset : offset + size],))
        return offset + size

    def write(out: MessageWriter, records: Records | None) -> None:
        if records is None:
            if not nullable:
                raise UnwritableError("None is not valid for records")
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
"""Maps (data, offset, count) to the elements and the offset after them."""
ItemsWriter: TypeAlias = Callable[[MessageWriter, Sequence[Any]], None]


def array_codec(item: Codec, length: LengthCodec, nullable: bool) -> Codec:
    """The codec of an array with elements of any type, read as a tuple."""
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
    """The codec of an array of fixed-size numbers, given by their letter in the struct module, read as a tuple."""
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
            raise MalformedError("null is not a valid array")
        return offset

    def write(out: MessageWriter, items: Sequence[Any] | None) -> None:
        if items is not None:
            write_length(out.tail, len(items))
            write_items(out, items)
        elif nullable:
            write_length(out.tail, -1)
        else:
            raise UnwritableError("None is not a valid array")

    return Codec(read, write, length_size)
