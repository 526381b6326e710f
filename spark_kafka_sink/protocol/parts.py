"""Codecs' values to and from bytes, with the errors of errors.py: what whole messages and records are made of."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.errors import ProtocolError, UsageError
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.values import Codec, MessageWriter
from spark_kafka_sink.protocol.wire_errors import MalformedError, UnwritableError
from spark_kafka_sink.protocol.wire_types import Buffer


def write_parts(what: str, *parts: tuple[Codec, Message]) -> list[Buffer]:
    """The parts as buffers, in order. Raises UsageError, which names `what`, where a value does not fit its field."""
    out = MessageWriter()
    try:
        for codec, message in parts:
            codec.write(out, message)
    except UnwritableError as error:
        raise UsageError(f"{what} cannot be written: {error}") from None
    return out.buffers()


def read_part(codec: Codec, data: memoryview, offset: int, what: str) -> tuple[Any, int]:
    """The value at `offset` and the offset behind it. Raises ProtocolError, which names `what`, where there is none."""
    values: list[Any] = []
    try:
        offset = codec.read(data, offset, values)
    except MalformedError as error:
        raise ProtocolError(f"{what} of {len(data):,} bytes cannot be read: {error}") from None
    return values[0], offset


def check_end(data: memoryview, offset: int, what: str) -> None:
    """Raises ProtocolError unless the data ends at `offset`."""
    if offset != len(data):
        raise ProtocolError(f"{what} of {len(data):,} bytes cannot be read: it ends at {offset:,}")
