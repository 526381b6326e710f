"""Arrays on the wire: a count and the elements; numbers all at once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spark_kafka_sink.protocol.values import Codec, LengthCodec, MessageWriter, check_fits
from spark_kafka_sink.protocol.wire_errors import MalformedError, UnwritableError

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
