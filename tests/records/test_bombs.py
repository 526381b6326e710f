"""Compressed records, counts and lengths of a hostile log cost at most 64 MB and a second, whatever they claim."""

from __future__ import annotations

import struct
from itertools import islice

import pytest
import zstandard

from spark_kafka_sink.errors import ProtocolError
from spark_kafka_sink.exactly_once.partition_reader import committed_records
from spark_kafka_sink.protocol.apis.fetch import PartitionData
from spark_kafka_sink.records.batch_header import batch_header
from spark_kafka_sink.records.compression import Codec, compress, decompress
from spark_kafka_sink.records.record_iter import iter_records
from spark_kafka_sink.records.small_batches import MAX_DECOMPRESSED, FetchedBatch, decode_batches
from tests.limits import UNMEASURED, costs_at_most
from tests.tiers import whole_but

pytestmark = pytest.mark.slow

EMPTY_RECORD = bytes((12, 0, 0, 0, 1, 1, 0))
"""The smallest record: no key, no value, no headers, offset 0."""

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


def refused(codec: Codec, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decompress(codec, data, MAX_DECOMPRESSED)


@pytest.mark.parametrize("window_log", [20, 27])
def test_a_zstd_bomb_that_does_not_say_its_size_is_refused_at_the_limit(window_log: int) -> None:
    """As Java writes it. A large window makes the decompressor keep a copy of what it has written."""
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log, write_content_size=False)
    bomb = zstandard.ZstdCompressor(compression_params=parameters).compress(bytes(3 * MAX_DECOMPRESSED))

    costs_at_most(lambda: refused(Codec.ZSTD, bomb))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_at_the_limit_is_read(codec: Codec) -> None:
    data = compress(codec, 1, [bytes(MAX_DECOMPRESSED)])

    costs_at_most(lambda: decompress(codec, data, MAX_DECOMPRESSED))


@pytest.mark.parametrize("text", whole_but([b"", b"a"], [b"a"], "empty members take the same path"))
def test_many_gzip_members_take_time_by_their_size_and_not_by_its_square(text: bytes) -> None:
    """50,000 members in a megabyte took a second, and twice as many took four."""
    member = compress(Codec.GZIP, 9, [text])

    def read(count: int) -> None:
        assert decompress(Codec.GZIP, member * count, MAX_DECOMPRESSED) == text * count

    costs_at_most(lambda: read(100_000), megabytes=UNMEASURED, seconds=0.6)
    costs_at_most(lambda: read(10_000))


def test_many_empty_snappy_blocks_cost_little() -> None:
    header = compress(Codec.SNAPPY, 1, [b""])
    block = struct.pack(">ib", 1, 0)

    costs_at_most(lambda: decompress(Codec.SNAPPY, header + block * 200_000, MAX_DECOMPRESSED), megabytes=UNMEASURED)
    costs_at_most(lambda: decompress(Codec.SNAPPY, header + block * 20_000, MAX_DECOMPRESSED))


def batch(count: int, payload: bytes, codec: Codec = Codec.NONE) -> FetchedBatch:
    return next(decode_batches(batch_bytes(count, payload, codec)))


def batch_bytes(count: int, payload: bytes, codec: Codec = Codec.NONE) -> bytes:
    plain = compress(codec, 1, [payload])
    header = batch_header(record_count=count, first_timestamp=0, max_timestamp=0, codec=codec, payload=[plain])
    return header + plain


def test_millions_of_records_in_a_few_kilobytes_are_never_all_in_memory() -> None:
    """As a list they would take 700 MB."""
    count = MAX_DECOMPRESSED // len(EMPTY_RECORD)
    bomb = batch_bytes(count, EMPTY_RECORD * count, Codec.ZSTD)
    assert len(bomb) < 5_000

    def begun() -> None:
        read = committed_records(PartitionData(0, 0, 9, records=(bomb,)), 0)
        assert all(record is not None for record, _ in islice(read, 70_000))

    costs_at_most(begun, megabytes=40)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 2, -1])
def test_a_count_of_records_that_are_not_there_is_refused_before_anything_is_allocated(count: int) -> None:
    hostile = batch(count, EMPTY_RECORD)

    def both_refuse() -> None:
        with pytest.raises(ProtocolError):
            hostile.records()
        if count > 0:
            with pytest.raises(ProtocolError):
                list(iter_records(EMPTY_RECORD, min(count, 65_536)))

    costs_at_most(both_refuse, megabytes=2, seconds=0.2)


@pytest.mark.parametrize(
    "record",
    [
        b"\xfe\xff\xff\xff\x0f" + EMPTY_RECORD[1:],  # a size of 2^31 - 1
        bytes((12, 0, 0, 0)) + b"\xfe\xff\xff\xff\x0f",  # a key of that size
        bytes((12, 0, 0, 0, 1, 1)) + b"\xfe\xff\xff\xff\x0f",  # as many headers
        bytes((12, 0, 0, 0, 1)) + b"\xff" * 20,  # a number that does not end
    ],
)
def test_a_length_that_is_not_there_is_refused_before_anything_is_allocated(record: bytes) -> None:
    def refuse() -> None:
        with pytest.raises(ProtocolError):
            batch(1, record).records()
        with pytest.raises(ProtocolError):
            list(iter_records(record * 40, 40))

    costs_at_most(refuse, megabytes=2, seconds=0.2)
