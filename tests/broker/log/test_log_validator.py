"""Which bytes a log takes, and with which code Kafka refuses the others; nothing is appended then."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.log.log_types import AppendOrigin, LogConfig, TimestampType
from spark_kafka_sink.broker.log.log_validator import validate
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.compression import Codec, compress
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from tests.broker.log.logs import NOW, batch, failing, opened, stored, values
from tests.every import every

HOUR = 3_600_000
GOOD = batch(b"a", b"b", b"c")


def with_fields(data: bytes, *, checked: bool = True, **places: int) -> bytes:
    """The batch with other header fields, and the checksum right again."""
    at = {"base_offset": (0, ">q"), "length": (8, ">i"), "magic": (16, ">b"), "crc": (17, ">I"), "attributes": (21, ">h")}
    at |= {"last_delta": (23, ">i"), "base_time": (27, ">q"), "max_time": (35, ">q"), "producer_id": (43, ">q")}
    at |= {"sequence": (53, ">i"), "count": (57, ">i")}
    changed = bytearray(data)
    for name, value in places.items():
        struct.pack_into(at[name][1], changed, at[name][0], value)
    if checked:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def with_payload(data: bytes, payload: bytes, attributes: int = 0) -> bytes:
    return with_fields(data[:61] + payload, length=61 - 12 + len(payload), attributes=attributes)


def compressed(data: bytes, codec: Codec) -> bytes:
    return with_payload(data, compress(codec, 1, [data[61:]]), attributes=codec)


REFUSED: list[tuple[str, bytes, ErrorCode, str]] = [
    ("nothing", b"", ErrorCode.INVALID_RECORD, "there is none"),
    ("a part of a batch", GOOD[:80], ErrorCode.INVALID_RECORD, "there is none"),
    ("two batches", GOOD + GOOD, ErrorCode.INVALID_RECORD, "exactly one"),
    ("a negative length", with_fields(GOOD, length=-1), ErrorCode.CORRUPT_MESSAGE, "less than the minimum"),
    ("a length without a header", with_fields(GOOD, length=20), ErrorCode.CORRUPT_MESSAGE, ""),
    ("magic 0", with_fields(GOOD, magic=0), ErrorCode.INVALID_RECORD, "magic"),
    ("magic 1", with_fields(GOOD, magic=1), ErrorCode.INVALID_RECORD, "magic"),
    ("magic 3", with_fields(GOOD, magic=3), ErrorCode.CORRUPT_MESSAGE, "Invalid magic"),
    ("magic -1", with_fields(GOOD, magic=-1), ErrorCode.CORRUPT_MESSAGE, "Invalid magic"),
    ("a base offset", with_fields(GOOD, base_offset=5), ErrorCode.INVALID_RECORD, "should be 0"),
    ("a wrong checksum", with_fields(GOOD, checked=False, crc=1), ErrorCode.CORRUPT_MESSAGE, "stored crc"),
    ("a negative offset range", with_fields(GOOD, last_delta=-1), ErrorCode.INVALID_RECORD, "offset range"),
    ("no records", with_fields(GOOD, count=0), ErrorCode.INVALID_RECORD, "reported count"),
    ("a count that is not the range's", with_fields(GOOD, count=2), ErrorCode.INVALID_RECORD, "Inconsistent"),
    ("more records than there are", with_fields(GOOD, count=4, last_delta=3), ErrorCode.INVALID_RECORD, ""),
    ("fewer records than there are", with_fields(GOOD, count=2, last_delta=1), ErrorCode.INVALID_RECORD, ""),
    ("very many records", with_fields(GOOD, count=2**31 - 1, last_delta=2**31 - 2), ErrorCode.INVALID_RECORD, ""),
    ("control records", with_fields(GOOD, attributes=0x30), ErrorCode.INVALID_RECORD, "control"),
    ("a producer without a sequence", with_fields(GOOD, producer_id=7), ErrorCode.INVALID_RECORD, "sequence"),
    ("an unknown codec", with_fields(GOOD, attributes=5), ErrorCode.UNKNOWN_SERVER_ERROR, "compression type id: 5"),
    ("what is not lz4", with_fields(GOOD, attributes=3), ErrorCode.UNKNOWN_SERVER_ERROR, "decompress"),
    ("what is not gzip", with_fields(GOOD, attributes=1), ErrorCode.UNKNOWN_SERVER_ERROR, "decompress"),
    ("half of a zstd frame", with_payload(GOOD, compressed(GOOD, Codec.ZSTD)[61:80], attributes=4),
     ErrorCode.UNKNOWN_SERVER_ERROR, "decompress"),
    ("a byte behind the records", with_payload(GOOD, GOOD[61:] + b"\0"), ErrorCode.INVALID_RECORD, ""),
    ("a stamp that only brokers set", with_fields(GOOD, attributes=8, max_time=-1), ErrorCode.INVALID_TIMESTAMP, "timestamp"),
]  # fmt: skip


@every("data, code, text", [row[1:] for row in REFUSED])
def test_refused(data: bytes, code: ErrorCode, text: str) -> None:
    with opened(None) as log:
        with failing(code, text):
            log.append_as_leader(data, 0)
        assert log.log_end_offset == 0


def test_a_batch_over_the_limit_is_too_large() -> None:
    with opened(None, LogConfig(max_message_bytes=len(GOOD))) as log:
        log.append_as_leader(GOOD, 0)
        with failing(ErrorCode.MESSAGE_TOO_LARGE):
            log.append_as_leader(batch(b"a", b"b", b"cd"), 0)


@pytest.mark.fault("hostile bytes", "decompression bomb")
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_bomb_is_refused_before_it_grows(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_kafka_sink.broker.log.log_validator.MAX_DECOMPRESSED", 1_000_000)
    data = with_payload(GOOD, compress(codec, 1, [bytes(2_000_000)]), attributes=codec)
    with opened(None) as log, failing(ErrorCode.UNKNOWN_SERVER_ERROR, "bytes allowed"):
        log.append_as_leader(data, 0)


@every("codec", list(Codec))
def test_what_nothing_changes_is_stored_as_it_came(codec: Codec) -> None:
    data = compressed(GOOD, codec)
    with opened(None) as log:
        log.append_as_leader(data, 7)
        (one,) = stored(log)
        assert (one.codec, bytes(one.payload), one.leader_epoch) == (codec, data[61:], 7)
        assert values([one]) == [b"a", b"b", b"c"]


@every("wanted", list(Codec))
@every("came", [Codec.NONE, Codec.LZ4, Codec.SNAPPY])
def test_a_topic_with_a_codec_gets_that_codec(wanted: Codec, came: Codec) -> None:
    with opened(None, LogConfig(compression_type=wanted)) as log:
        log.append_as_leader(compressed(GOOD, came), 0)
        (one,) = stored(log)
        assert one.codec is wanted
        assert values([one]) == [b"a", b"b", b"c"]


def test_a_batch_that_the_topics_codec_makes_too_large_is_refused() -> None:
    data = compressed(batch(b"x" * 5000), Codec.GZIP)
    config = LogConfig(compression_type=Codec.NONE, max_message_bytes=1000)
    with opened(None, config) as log, failing(ErrorCode.MESSAGE_TOO_LARGE):
        log.append_as_leader(data, 0)


def test_the_brokers_time_replaces_the_records(folder: Path | None) -> None:
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    with opened(folder, config) as log:
        info = log.append_as_leader(batch(b"a", b"b", timestamp=5), 0)
        (one,) = stored(log)
        assert info.log_append_time_ms == NOW
        assert [record.timestamp for record in one.records()] == [NOW, NOW]


def test_a_header_that_lies_about_the_latest_record_is_put_right() -> None:
    with opened(None) as log:
        log.append_as_leader(with_fields(batch(b"a", timestamp=5), max_time=999), 0)
        assert stored(log)[0].max_timestamp == 5


@pytest.mark.parametrize("count", [3, 300])
def test_offset_deltas_out_of_order_are_counted_anew(count: int) -> None:
    """As Kafka's buildRecordsAndAssignOffsets does for compressed batches."""
    records = [NewRecord(b"k", b"%d" % i, NOW) for i in range(count)]
    payload = b"".join(small_batch([record])[61:] for record in records)
    data = with_payload(small_batch(records), compress(Codec.LZ4, 1, [payload]), attributes=Codec.LZ4)
    with opened(None) as log:
        log.append_as_leader(data, 0)
        (one,) = stored(log)
        assert [(record.offset, record.value) for record in one.records()] == [(i, b"%d" % i) for i in range(count)]
        assert one.codec is Codec.LZ4


def records_with(count: int, bad: dict[int, dict[str, Any]]) -> bytes:
    good: dict[str, Any] = {"key": b"k", "value": b"v", "timestamp": NOW}
    return small_batch([NewRecord(**{**good, **bad.get(i, {})}) for i in range(count)])


@pytest.mark.parametrize("count", [5, 100])
def test_a_compacted_topic_names_the_records_without_a_key(count: int) -> None:
    with opened(None, LogConfig(compact=True)) as log:
        with pytest.raises(ApiException) as raised:
            log.append_as_leader(records_with(count, {1: {"key": None}, 3: {"key": None}}), 0)
        assert raised.value.code is ErrorCode.INVALID_RECORD
        assert [index for index, _ in raised.value.record_errors] == [1, 3]
        assert "without key" in raised.value.record_errors[0][1]
        log.append_as_leader(records_with(count, {1: {"key": b""}}), 0)


@pytest.mark.parametrize("count", [5, 100])
def test_times_out_of_the_topics_range_are_named(count: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=HOUR)
    edges = {0: {"timestamp": NOW - HOUR}, 1: {"timestamp": NOW + HOUR}, 2: {"timestamp": -1}}
    beyond = {3: {"timestamp": NOW - HOUR - 1}, 4: {"timestamp": NOW + HOUR + 1}}
    with opened(None, config) as log:
        log.append_as_leader(records_with(count, edges), 0)
        with pytest.raises(ApiException) as raised:
            log.append_as_leader(records_with(count, {**edges, **beyond}), 0)
        assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in raised.value.record_errors] == [3, 4]


@settings(max_examples=300)
@given(
    data=st.sampled_from([GOOD, compressed(GOOD, Codec.LZ4), compressed(GOOD, Codec.SNAPPY), compressed(GOOD, Codec.GZIP)]),
    at=st.integers(0, 400),
    new=st.binary(min_size=1, max_size=8),
    checked=st.booleans(),
)
def test_hostile_bytes_are_a_batch_or_an_api_exception(data: bytes, at: int, new: bytes, checked: bool) -> None:
    spoiled = bytearray(data)
    at %= len(data)
    spoiled[at : at + len(new)] = new
    hostile = with_fields(bytes(spoiled), checked=checked) if len(spoiled) >= 61 else bytes(spoiled)
    try:
        valid = validate(hostile, LogConfig(), AppendOrigin.CLIENT, NOW, "topic-0")
    except ApiException:
        return
    with opened(None) as log:
        log.append_as_leader(hostile, 0)
        assert len(values(stored(log))) == valid.header.record_count
