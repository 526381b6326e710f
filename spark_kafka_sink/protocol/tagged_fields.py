"""Tagged fields (KIP-482): those that a message class declares, and unknown ones, which are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spark_kafka_sink.protocol.fields import Message, RawTaggedField
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
        raw, offset = _read_raw(data, offset)
        unknown = []
        for tag, content in raw.items():
            field = by_tag.get(tag)
            if field is None:
                unknown.append(RawTaggedField(tag, bytes(content)))
            else:
                setattr(message, field.name, _read_known(field, content))
        if unknown:
            message.unknown_tagged_fields = tuple(unknown)
        return offset

    def write(out: MessageWriter, message: Message) -> None:
        if not known and not message.unknown_tagged_fields:
            out.tail.append(0)
            return
        raw = [*_encode_known(known, message), *message.unknown_tagged_fields]
        write_unsigned_varint(out.tail, len(raw))
        for tag, content in sorted(raw):
            write_unsigned_varint(out.tail, tag)
            write_unsigned_varint(out.tail, len(content))
            out.tail += content

    return TaggedFieldsCodec(read, write)


def _read_raw(data: memoryview, offset: int) -> tuple[dict[int, memoryview], int]:
    count, offset = read_unsigned_varint(data, offset)
    check_fits(data, offset, 2 * count, "tagged fields")
    raw: dict[int, memoryview] = {}
    for _ in range(count):
        tag, offset = read_unsigned_varint(data, offset)
        size, offset = read_unsigned_varint(data, offset)
        check_fits(data, offset, size, f"a tagged field (tag {tag})")
        if tag in raw:
            raise MalformedError(f"tag {tag} twice")
        raw[tag] = data[offset : offset + size]
        offset += size
    return raw, offset


def _read_known(field: TaggedField, content: memoryview) -> Any:
    values: list[Any] = []
    try:
        end = field.codec.read(content, 0, values)
    except UNREADABLE as error:
        raise malformed(error).inside(field.name) from None
    if end != len(content):
        raise MalformedError(f"{len(content) - end:,} unexpected bytes", field.name)
    return values[0]


def _encode_known(known: Sequence[TaggedField], message: Message) -> list[RawTaggedField]:
    """Encodes declared fields. A default is not sent, because it is what a missing field means."""
    encoded = []
    for field in known:
        value = getattr(message, field.name)
        if value != field.default:
            out = MessageWriter()
            field.codec.write(out, value)
            encoded.append(RawTaggedField(field.tag, bytes(out.tail)))
    return encoded
