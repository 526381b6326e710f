"""Reads one magic-2 record from untrusted bytes."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import ProtocolError

Headers = tuple[tuple[str, bytes | None], ...]

# The number of bits of a number, and of bytes before the first number
INT_BITS, LONG_BITS = 32, 64
ATTRIBUTES_SIZE = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer sees it. `timestamp` is in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_record(
    data: bytes, position: int, base_offset: int, first_timestamp: int, log_append_time: int | None
) -> tuple[Record, int]:
    """Returns the record at `position` and the start of the next one. Raises ProtocolError."""
    try:
        size, start = read_varint(data, position, INT_BITS)
        end = start + size
        if not 0 < size <= len(data) - start:
            raise ProtocolError(
                f"a record claims to be {counted(size, 'byte')} long, but only {counted(len(data) - start, 'is', 'are')} left"
            )
        record, read = _read_body(data, start + ATTRIBUTES_SIZE, base_offset, first_timestamp, log_append_time)
    except IndexError:
        raise ProtocolError("a record ends in the middle of a number") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a header's key is not valid UTF-8: {error.reason}") from None
    if read != end:
        raise ProtocolError(f"a record claims to be {counted(size, 'byte')} long, but its fields have {read - start}")
    return record, end


def read_fields(data: bytes) -> tuple[bytes | None, bytes | None, Headers]:
    """Returns the key, the value and the headers of a record, given its bytes from the key's length on."""
    key, position = _bytes(data, 0)
    value, position = _bytes(data, position)
    headers, _ = _headers(data, position)
    return key, value, headers


def _read_body(
    data: bytes, position: int, base_offset: int, first_timestamp: int, log_append_time: int | None
) -> tuple[Record, int]:
    """Reads the fields after the record's attributes, which have no meaning yet."""
    timestamp_delta, position = read_varint(data, position, LONG_BITS)
    offset_delta, position = read_varint(data, position, INT_BITS)
    key, position = _bytes(data, position)
    value, position = _bytes(data, position)
    headers, position = _headers(data, position)
    timestamp = first_timestamp + timestamp_delta if log_append_time is None else log_append_time
    return Record(base_offset + offset_delta, timestamp, key, value, headers), position


def _headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position, INT_BITS)
    if not 0 <= count <= (len(data) - position) // 2:  # at least two one-byte numbers
        left = counted(len(data) - position, "byte is", "bytes are")
        raise ProtocolError(f"a record claims to have {counted(count, 'header')}, but only {left} left")
    headers = []
    for _ in range(count):
        key, position = _bytes(data, position)
        if key is None:
            raise ProtocolError("a header has a null key")
        value, position = _bytes(data, position)
        headers.append((key.decode(), value))
    return tuple(headers), position


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position, INT_BITS)
    if size < 0:  # as in Java, any negative length is null
        return None, position
    if size > len(data) - position:
        raise ProtocolError(
            f"a field claims to be {counted(size, 'byte')} long, but only {counted(len(data) - position, 'is', 'are')} left"
        )
    return data[position : position + size], position + size


def read_varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """Returns a zigzag number of at most `bits` bits and the position after it. Raises IndexError at the end of the data."""
    byte = data[position]
    position += 1
    code, shift = byte & 0x7F, 7
    while byte > 0x7F:
        byte = data[position]
        position += 1
        code |= (byte & 0x7F) << shift
        shift += 7
        if code >> bits or shift > bits + 6:
            raise ProtocolError(f"a number in a record has more than {bits} bits")
    return (code >> 1) ^ -(code & 1), position
