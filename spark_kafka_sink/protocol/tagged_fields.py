"""Tagged fields (KIP-482): those that a message class declares.

Unknown ones are skipped, because nothing here forwards messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.values import (
    UNREADABLE,
    Codec,
    MalformedError,
    MessageWriter,
    check_fits,
    malformed,
    read_unsigned_varint,
    write_unsigned_varint,
)

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
