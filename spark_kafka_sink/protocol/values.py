"""Readers and writers of single values: varints, lengths, strings, ids, records.

A reader takes the data and an offset, appends one value to `into` and returns the offset behind it. No length is believed
before it is held against the bytes that are there.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from spark_kafka_sink.protocol.wire_errors import MalformedError, UnwritableError
from spark_kafka_sink.protocol.wire_types import Buffer, FixedType, Records


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
