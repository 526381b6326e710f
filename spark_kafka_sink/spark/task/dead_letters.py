"""Dead letters: a bad row as a record of the dead-letter topic, with headers that say why, as Kafka Connect sets them.

The counterpart in Kafka Connect is DeadLetterQueueReporter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.options.option import INT64_MAX
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.base.bad_rows import is_text
from spark_kafka_sink.producer.producer import CHUNK_SIZE
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.arrow_arrays import array_of_bytes, byte_column, validity
from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.columns import NO_PARTITION, NO_TIMESTAMP, RecordColumns
from spark_kafka_sink.records.compression import Codec, codec_of, compress
from spark_kafka_sink.spark.task.letter_text import Form, parts_of
from spark_kafka_sink.spark.task.refused_rows import RefusedRows

MAX_MESSAGE_CHARS: Final = 1000
"""Of the header with the error's text. Some errors quote the value that they refuse."""

# A record takes at most so much besides its key, value and headers, and so much for each header (records/encoder.py).
_OF_RECORD: Final = HEADER_SIZE + 40
_OF_HEADER: Final = 10

STAGES: Final[Mapping[object, str]] = {
    "key": "KEY_CONVERTER",
    "value": "VALUE_CONVERTER",
    "headers": "HEADER_CONVERTER",
}
"""Stage of Kafka Connect, by the part of the record that an error is about."""
LAST_STAGE: Final = "KAFKA_PRODUCE"


class Why(StrEnum):
    """Headers that say why, in their order: Kafka Connect's, then our own."""

    TOPIC = "topic"
    PARTITION = "partition"
    STAGE = "stage"
    CLASS = "exception.class.name"
    MESSAGE = "exception.message"
    REASON = "reason"
    QUERY = "query.id"
    BATCH = "batch.id"
    SPARK_PARTITION = "spark.partition"
    ROW = "row"
    KEY_FORMAT = "key.format"
    VALUE_FORMAT = "value.format"
    HEADERS_OMITTED = "headers.omitted"
    TIMESTAMP = "timestamp"
    KEY_SIZE = "key.size"
    VALUE_SIZE = "value.size"


class Reason(StrEnum):
    """Reasons under which bad rows are counted. Kafka's names of errors, and codes of ours, are further ones."""

    SERIALIZATION = "serialization"
    SCHEMA = "schema"
    TOO_LARGE = "too-large"
    TOPIC = "topic"
    PARTITION = "partition"
    TIMESTAMP = "timestamp"
    HEADER = "header"
    RECORD = "record"


_HEADERS_KIND: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Header = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Place:
    """The place in Spark that a letter names. query_id, batch_id: None outside of a stream."""

    spark_partition: int = -1
    query_id: str | None = None
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter.

    own: the row's valid headers. why: headers that say why, without the prefix. timestamp: NO_TIMESTAMP for the time of writing.
    """

    key: bytes | None
    value: bytes | None
    own: tuple[Header, ...]
    why: Mapping[str, bytes]
    timestamp: int = NO_TIMESTAMP

    def size(self, prefix: str) -> int:
        """Returns an upper bound for the bytes of the record."""
        whole = (*self.own, *_prefixed(self.why, prefix))
        headers = sum(_OF_HEADER + len(name) + len(value or b"") for name, value in whole)
        return _OF_RECORD + len(self.key or b"") + len(self.value or b"") + headers


def letters_of(
    refused: RefusedRows, reasons: Sequence[str], place: Place, prefix: str, serialized: frozenset[str] = frozenset()
) -> Iterator[Letter]:
    """Yields a letter for each row.

    Args:
        reasons: the reason of each row, as reports count it.
        prefix: the prefix of headers that say why. The row's own headers with this prefix are those of an earlier letter, and
            are left out.
        serialized: the parts, key and value, that the producer serializes.
    """
    columns = refused.columns
    count = columns.num_records
    keys, values = parts_of(columns.key, count), parts_of(columns.value, count)
    headers = headers_of(columns)
    for row in range(count):
        own, omitted = headers[row]
        why = _why(refused, row, reasons[row], place)
        for part, (data, form) in (("key", keys[row]), ("value", values[row])):
            made = refused.formats[part][row] if part in refused.formats else form
            if refused.is_sent and part in serialized:
                made = Form.SERIALIZED
            if made != Form.OWN and data is not None:
                why[Why(f"{part}.format")] = made.encode()
        if omitted:
            why[Why.HEADERS_OMITTED] = b"%d" % omitted
        kept = tuple(header for header in own if not header[0].startswith(prefix.encode()))
        timestamp = NO_TIMESTAMP if columns.timestamp is None else int(columns.timestamp[row])
        letter = Letter(keys[row][0], values[row][0], kept, why, timestamp)
        is_refused = reasons[row] in (Reason.TIMESTAMP, ErrorCode.INVALID_TIMESTAMP.name)
        yield without_timestamp(letter) if is_refused or not NO_TIMESTAMP <= timestamp <= INT64_MAX else letter


def _why(refused: RefusedRows, row: int, reason: str, place: Place) -> dict[str, bytes]:
    """Returns the headers that say why, but for those about what became of the row."""
    error, topic = refused.errors[row], refused.topics[row]
    asked = NO_PARTITION if refused.columns.partition is None else int(refused.columns.partition[row])
    partition = asked if refused.partition == NO_PARTITION else refused.partition
    kind = type(error)
    found = {
        Why.TOPIC: topic,
        Why.PARTITION: str(partition) if partition != NO_PARTITION or reason == Reason.PARTITION else None,
        Why.STAGE: STAGES.get(error.facts.get("part", error.facts.get("column")), LAST_STAGE),
        Why.CLASS: f"{kind.__module__}.{kind.__qualname__}",
        Why.MESSAGE: shortened_text(refused.message(row)),
        Why.REASON: reason,
        Why.QUERY: place.query_id,
        Why.BATCH: place.batch_id,
        Why.SPARK_PARTITION: str(place.spark_partition) if place.spark_partition >= 0 else None,
        Why.ROW: None if refused.rows is None else str(refused.rows[row]),
    }
    return {name: value.encode(errors="backslashreplace") for name, value in found.items() if value is not None}


def shortened_text(text: str) -> str:
    """Returns an error's text, cut if it is long."""
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[: MAX_MESSAGE_CHARS - 3]}..."


def headers_of(columns: RecordColumns) -> list[tuple[tuple[Header, ...], int]]:
    """Returns the valid headers of each row, and the number of the others: null, or with a key that is null or not UTF-8."""
    fixed = tuple((name.encode(), value) for name, value in columns.fixed_headers)
    if columns.headers is None:
        return [(fixed, 0)] * columns.num_records
    lengths = np.maximum(columns.headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), 0)
    ends = np.cumsum(lengths).tolist()
    elements = columns.headers.flatten()
    present = validity(elements).tolist()
    names = byte_column(elements.field("key")).to_pylist()
    values = byte_column(elements.field("value")).to_pylist()
    found = []
    for start, end in pairwise([0, *ends]):
        given = [(names[place], values[place]) for place in range(start, end) if present[place]]
        valid = tuple(header for header in given if header[0] is not None and is_text(header[0]))
        found.append(((*valid, *fixed), end - start - len(valid)))
    return found


# Letters that are refused


def without_timestamp(letter: Letter) -> Letter:
    """Returns the letter with the time of writing. Its own timestamp goes into a header."""
    return replace(letter, timestamp=NO_TIMESTAMP, why={**letter.why, Why.TIMESTAMP: b"%d" % letter.timestamp})


def smaller(letter: Letter) -> Letter | None:
    """Returns the letter with less of the row, and with headers that say so; None if there is nothing left to leave out."""
    if letter.value is not None:
        return replace(letter, value=None, why={**letter.why, **_omitted("value", letter.value)})
    if letter.key is not None:
        return replace(letter, key=None, why={**letter.why, **_omitted("key", letter.key)})
    if letter.own:
        omitted = len(letter.own) + int(letter.why.get(Why.HEADERS_OMITTED, b"0"))
        return replace(letter, own=(), why={**letter.why, Why.HEADERS_OMITTED: b"%d" % omitted})
    if Why.MESSAGE in letter.why:
        return replace(letter, why={name: value for name, value in letter.why.items() if name != Why.MESSAGE})
    return None


def _omitted(part: str, data: bytes) -> dict[str, bytes]:
    return {Why(f"{part}.format"): Form.OMITTED.encode(), Why(f"{part}.size"): b"%d" % len(data)}


def fitted(letter: Letter, prefix: str, config: ProducerConfig) -> Letter | None:
    """Returns the letter without what would make it larger than the client sends; None if its headers alone are too large.

    A letter may have all chunks of buffer.memory, and max.request.size when its key and value are compressed.
    """
    chunk = min(CHUNK_SIZE, max(config.buffer_memory, 1))
    memory = config.buffer_memory // chunk * chunk
    codec, found = codec_of(config.compression_type), letter
    while (size := found.size(prefix)) > min(config.max_request_size, memory):
        own = (found.key or b"", found.value or b"")
        if size <= memory and codec is not Codec.NONE:
            size += len(compress(codec, config.compression_level, own)) - sum(map(len, own))
            if size <= config.max_request_size:
                break
        less = smaller(found)
        if less is None:
            return None
        found = less
    return found


_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE.name, ErrorCode.RECORD_LIST_TOO_LARGE.name)


def amended(letter: Letter, error: KafkaSinkError) -> Letter | None:
    """Returns a letter that brokers may accept after they have rejected `letter`; None if nothing can be changed.

    The dead-letter topic may have the same limits as the row's own topic: max.message.bytes and message.timestamp.*.
    """
    name = error.facts.get("error")
    if name in _TOO_LARGE:
        return smaller(letter)
    if name == ErrorCode.INVALID_TIMESTAMP.name and letter.timestamp != NO_TIMESTAMP and Why.TIMESTAMP not in letter.why:
        return without_timestamp(letter)
    return None


# Letters as columns


def columns_of(letters: Sequence[Letter], prefix: str) -> RecordColumns:
    """Returns the records of letters."""
    headers = [(*letter.own, *_prefixed(letter.why, prefix)) for letter in letters]
    flat = [header for own in headers for header in own]
    offsets = np.zeros(len(letters) + 1, np.int32)
    np.cumsum([len(own) for own in headers], out=offsets[1:])
    pairs = pa.StructArray.from_arrays(
        [array_of_bytes([name for name, _ in flat], pa.string()), array_of_bytes([value for _, value in flat])],
        fields=list(_HEADERS_KIND.value_type),
    )
    return RecordColumns(
        num_records=len(letters),
        value=array_of_bytes([letter.value for letter in letters]),
        key=array_of_bytes([letter.key for letter in letters]),
        headers=pa.Array.from_buffers(_HEADERS_KIND, len(letters), [None, pa.py_buffer(offsets)], children=[pairs]),
        timestamp=np.array([letter.timestamp for letter in letters], np.int64),
    )


def letters_from(columns: RecordColumns, prefix: str) -> list[Letter]:
    """Returns the letters that were sent as these columns."""
    start = prefix.encode()
    found: list[Letter] = []
    keys, values = parts_of(columns.key, columns.num_records), parts_of(columns.value, columns.num_records)
    for row, (headers, _) in enumerate(headers_of(columns)):
        why = {name.removeprefix(start).decode(): value or b"" for name, value in headers if name.startswith(start)}
        own = tuple(header for header in headers if not header[0].startswith(start))
        # A letter without a timestamp of its own was sent with the time of the append.
        timestamp = NO_TIMESTAMP if columns.timestamp is None or Why.TIMESTAMP in why else int(columns.timestamp[row])
        found.append(Letter(keys[row][0], values[row][0], own, why, timestamp))
    return found


def _prefixed(why: Mapping[str, bytes], prefix: str) -> Iterator[Header]:
    return ((f"{prefix}{name}".encode(), value) for name, value in why.items())
