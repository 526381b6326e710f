"""What the fuzzer calls: each target takes any bytes, and fails if the code under it does more than refuse them.

A target raises AssertionError for a wrong result; whatever else it raises is an exception that a user would have seen.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from crc32c import crc32c

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_types import AppendOrigin, LogConfig
from spark_kafka_sink.broker.log.log_validator import validate
from spark_kafka_sink.client.api_versions import fallback_version, node_api_versions
from spark_kafka_sink.client.cluster import Cluster, Node, merge_partitions
from spark_kafka_sink.errors import ProtocolError, SchemaError, SerializationError, UnsupportedVersionError
from spark_kafka_sink.exactly_once import commit_record
from spark_kafka_sink.exactly_once.commit_record import State
from spark_kafka_sink.exactly_once.partition_reader import committed_records
from spark_kafka_sink.formats.avro.avro_format import AvroFormat
from spark_kafka_sink.formats.json_schema.json_document import Documents
from spark_kafka_sink.formats.protobuf.proto_files import _with_marks as with_marks
from spark_kafka_sink.formats.protobuf.proto_files import decoded
from spark_kafka_sink.formats.protobuf.protobuf_format import inline_rules
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.apis.fetch import AbortedTransaction, PartitionData
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsResponse, MetadataResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import decode_request, decode_response, encode_request, encode_response
from spark_kafka_sink.records.batch_header import HEADER_SIZE, MAGIC, SIZE_BEFORE_LENGTH, UNCHECKED
from spark_kafka_sink.records.compression import Codec, compress, decompress
from spark_kafka_sink.records.record_iter import iter_records
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import FetchedBatch, decode_batches
from spark_kafka_sink.spark.driver.event_queue import error_text
from spark_kafka_sink.verify.json_values import json_value, validated_json
from spark_kafka_sink.verify.record_errors import UndecodableError
from tests.exactly_once.examples import BEFORE, record
from tests.protocol.golden_messages import golden_messages
from tests.records.golden_batches import golden_cases

NOW_MS: Final = 1_700_000_000_000
LIMIT: Final = 1_000_000
"""What decompressed data may have here. Each target's own limits are tested with larger data."""

# Responses: a byte for the API, one for the version, then the frame.


def response(data: bytes) -> None:
    """A broker's response of any API and version."""
    if len(data) < 2 or (api := ALL_APIS.get(data[0])) is None or not api.has_version(data[1]):
        return
    version, frame = data[1], data[2:]
    body = _response(api, version, frame)
    if body is None:
        return
    _understood(body, version)
    if isinstance(body, ApiVersionsResponse) and body.error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
        frame += bytes(4)  # it may be the error code alone, without the number of APIs
    written = b"".join(encode_response(api, version, 1, body))
    assert len(written) <= len(frame), "more was read than there is"
    assert _response(api, version, written) == body, "written again, it means something else"


def _response(api: AnyApi, version: int, frame: bytes) -> Message | None:
    try:
        body: Message = decode_response(api, version, frame)[1]
    except ProtocolError:
        return None
    return body


def _understood(body: Message, version: int) -> None:
    """What a client makes of it before anything else."""
    if isinstance(body, ApiVersionsResponse):
        versions = node_api_versions("broker 1", body)
        fallback_version(version, body)
        for api in ALL_APIS.values():
            with suppress(UnsupportedVersionError):
                assert api.has_version(versions.usable(api))
    elif isinstance(body, MetadataResponse):
        topics = {
            topic.name or "": merge_partitions(topic.partitions, topic.topic_id, None, reliable_epochs=version >= 9)
            for topic in body.topics
        }
        cluster = Cluster({each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in body.brokers}, topics)
        for topic in topics:
            assert len(cluster.available_partitions(topic)) <= len(cluster.partitions(topic))


def _response_seeds() -> Iterable[bytes]:
    return (bytes((each.api.key, each.version)) + each.data for each in golden_messages() if each.kind == "response")


# Requests: the frame


def request(data: bytes) -> None:
    """A client's request of any API and version."""
    found = _request(data)
    if found is None:
        return
    api, version, client_id, body = found
    written = b"".join(encode_request(api, version, 1, client_id, body))
    assert len(written) <= len(data), "more was read than there is"
    assert _request(written) == found, "written again, it means something else"


def _request(data: bytes) -> tuple[AnyApi, int, str | None, Message] | None:
    try:
        header, body = decode_request(data, ALL_APIS)
    except (ProtocolError, UnsupportedVersionError):
        return None
    return ALL_APIS[header.api_key], header.api_version, header.client_id, body


def _request_seeds() -> Iterable[bytes]:
    return (each.data for each in golden_messages() if each.kind == "request")


# Record batches: a byte that says what is made right, then the batch. A fuzzer cannot guess a checksum.

_RIGHT_SIZE, _RIGHT_MAGIC, _RIGHT_CHECKSUM, _COMPRESSED = 1, 2, 4, 8


def _batch(data: bytes) -> bytes:
    """Returns a batch, with right size, magic, checksum and compression as its first byte says."""
    flags, batch = data[0], bytearray(data[1:])
    if len(batch) < HEADER_SIZE:
        return bytes(batch)
    if flags & _COMPRESSED:
        attributes = int.from_bytes(batch[UNCHECKED.size : UNCHECKED.size + 2], "big")
        codec = Codec((attributes & 7) % len(Codec))
        batch[UNCHECKED.size : UNCHECKED.size + 2] = (attributes & ~7 | codec).to_bytes(2, "big")
        batch[HEADER_SIZE:] = compress(codec, 1, [bytes(batch[HEADER_SIZE:])])
    if flags & _RIGHT_SIZE:
        batch[8:SIZE_BEFORE_LENGTH] = struct.pack(">i", len(batch) - SIZE_BEFORE_LENGTH)
    if flags & _RIGHT_MAGIC:
        batch[16] = MAGIC
    if flags & _RIGHT_CHECKSUM:
        batch[UNCHECKED.size - 4 : UNCHECKED.size] = struct.pack(">I", crc32c(bytes(batch[UNCHECKED.size :])))
    return bytes(batch)


def batches(data: bytes) -> None:
    """The records of a Fetch response, read one by one, as columns, and as those that are committed."""
    if not data:
        return
    records = _batch(data)
    read = 0
    with suppress(ProtocolError):
        for batch in decode_batches(records, cut_off=True):
            read += 1
            _read_alike(batch)
    aborted = (AbortedTransaction(producer_id=0, first_offset=0),)
    before = 5
    with suppress(ProtocolError):
        for one, after in committed_records(PartitionData(0, 0, 9, aborted_transactions=aborted, records=(records,)), before):
            assert one is None or one.offset >= 5
            assert after >= 5


def _read_alike(batch: FetchedBatch) -> None:
    """Two readers find the same records, or both refuse them. Only one of them looks at the text of a header's key."""
    one_by_one, complaint = _one_by_one(batch)
    columns = _columns(batch)
    if one_by_one is None:
        assert columns is None or "UTF-8" in complaint, f"columns were read, but records were not: {complaint}"
        return
    assert columns is not None, "records were read, but columns were not"
    offsets, keys = columns
    assert [one.offset - batch.base_offset for one in one_by_one] == offsets.tolist()
    assert [-1 if one.key is None else len(one.key) for one in one_by_one] == np.maximum(keys, -1).tolist()


def _one_by_one(batch: FetchedBatch) -> tuple[list[Record] | None, str]:
    try:
        return list(batch.each_record(LIMIT)), ""
    except ProtocolError as error:
        return None, error.message


def _columns(batch: FetchedBatch) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        plain = decompress(batch.codec, batch.payload, LIMIT)
        if not 0 <= batch.record_count <= len(plain):
            return None
        chunks = list(iter_records(plain, batch.record_count))
    except ProtocolError:
        return None
    empty = [np.empty(0, np.int64)]
    return (
        np.concatenate([chunk.offset_deltas for chunk in chunks] or empty),
        np.concatenate([chunk.key_lengths for chunk in chunks] or empty),
    )


def _batch_seeds() -> Iterable[bytes]:
    for case in golden_cases():
        for codec, batch in case.batches.items():
            yield b"\x07" + batch
            if codec is Codec.NONE:
                for number in range(1, len(Codec)):
                    yield b"\x0f" + batch[: UNCHECKED.size] + struct.pack(">h", number) + batch[UNCHECKED.size + 2 :]


def produced(data: bytes) -> None:
    """A batch that a client sends to the embedded broker."""
    if not data:
        return
    batch = _batch(data)
    for config in (LogConfig(), LogConfig(compact=True, compression_type=Codec.LZ4)):
        try:
            stored = validate(batch, config, AppendOrigin.CLIENT, NOW_MS, "t-0")
        except ApiException:
            continue
        header = stored.at(0, 0)
        (kept,) = decode_batches(b"".join((header.unchecked_bytes(), *stored.rest)))
        found, complaint = _one_by_one(kept)
        assert found is not None or "UTF-8" in complaint, f"the log stored what nobody can read: {complaint}"


# Compressed data: a byte for the codec, then the data


def compressed(data: bytes) -> None:
    """The payload of a batch in any codec."""
    if not data:
        return
    codec = Codec(data[0] % len(Codec))
    with suppress(ProtocolError):
        assert len(decompress(codec, data[1:], LIMIT)) <= LIMIT


def _compressed_seeds() -> Iterable[bytes]:
    texts = (b"", b"a", bytes(1000), bytes(range(256)) * 3)
    for codec in Codec:
        for text in texts:
            yield bytes((codec,)) + compress(codec, 1, [text])
            yield bytes((codec,)) + compress(codec, 1, [text]) * 2


# The commit log: a key and a value


def commit_log(data: bytes) -> None:
    """The keys and values in the commit log, between two NULs."""
    key, _, values = data.partition(b"\0")
    with suppress(ProtocolError):
        commit_record.decode_key(key, "log")
    with suppress(ProtocolError):
        found = commit_record.decode(dict(enumerate(values.split(b"\0"))))
        assert commit_record.decode(dict(enumerate(commit_record.encode(found)))) == found


def _commit_log_seeds() -> Iterable[bytes]:
    to = replace(BEFORE[0].handle, partitions=(("topic", "0-3,5"),))
    for each in (record(State.PREPARED), record(State.REPLAY), replace(record(State.COMPLETE), transactions=())):
        with_partitions = replace(each, transactions=tuple(replace(one, handle=to) for one in each.transactions))
        for size in (60, 1_000_000):
            yield b"\0".join([commit_record.encode_key("query", 0), *commit_record.encode(with_partitions, size)])


# Texts and values of a registry or a topic: a byte for the reader, then the text. SCHEMA stands before the record of a topic.

TEXTS: Final[Sequence[Callable[[str], object]]] = (
    inline_rules,
    decoded,
    lambda text: with_marks(text, 1),
    lambda text: AvroFormat().load(text, {}).encode_value({}),
    lambda text: Documents(text, {}),
    lambda text: json_value(text.encode()),
    lambda text: validated_json(SCHEMA, {})(text.encode()),
    lambda text: error_text(ValueError(text)),
)
SCHEMA: Final = """{"uniqueItems": true, "pattern": "^(a+)+$", "patternProperties": {"^(\\\\w*\\\\.)*$": {"type": "string"}},
    "additionalProperties": {"$ref": "#"}, "items": {"$ref": "#"}}"""


def texts(data: bytes) -> None:
    """A text that a stranger wrote: a schema, a record, an error."""
    if data:
        with suppress(SchemaError, SerializationError, UndecodableError):
            TEXTS[data[0] % len(TEXTS)](data[1:].decode(errors="replace"))


def _text_seeds() -> Iterable[bytes]:
    proto = 'syntax = "proto3"; /* a */ message M { string a = 1 [(confluent.field_meta) = { rules: [] }]; map<int32, M> m = 2; }'
    avro = """{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "record", "name": "S", "fields": [
        {"name": "b", "type": ["null", "S"], "default": null}]}, "default": {}}]}"""
    for number in range(len(TEXTS)):
        for text in (proto, avro, SCHEMA, '[{"a.b.": "aaa!"}, {"a.b.": "aaa!"}]', "at http://a:b@c?d e", "QUJD  "):
            yield bytes((number,)) + text.encode()


TARGETS: Final[Mapping[str, tuple[Callable[[bytes], None], Callable[[], Iterable[bytes]]]]] = {
    "responses": (response, _response_seeds),
    "requests": (request, _request_seeds),
    "batches": (batches, _batch_seeds),
    "produced": (produced, _batch_seeds),
    "compressed": (compressed, _compressed_seeds),
    "commit_log": (commit_log, _commit_log_seeds),
    "texts": (texts, _text_seeds),
}
"""By name: the target, and what makes the bytes that a run begins with."""


# The kept corpus: one file of base64 lines for each target, the shortest inputs first. Inputs that once failed stay in it


FOLDER: Final = Path(__file__).parent / "corpus"
MOST_BYTES: Final = 32_000
"""Of one file. Golden messages and batches, with which each run begins as well, are kept elsewhere."""


def kept(target: str) -> list[bytes]:
    file = FOLDER / f"{target}.txt"
    return [base64.b64decode(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep(target: str, inputs: Iterable[bytes]) -> int:
    """Replaces the corpus of a target by these inputs, as many as fit. Returns how many are kept."""
    lines, size = [], 0
    for line in sorted({base64.b64encode(each).decode() for each in inputs}, key=lambda line: (len(line), line)):
        size += len(line) + 1
        if size > MOST_BYTES:
            break
        lines.append(line)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines))
    return len(lines)
