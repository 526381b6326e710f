"""Each codec writes what Kafka's brokers read, and reads what any client writes, within a limit."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import OptionError, ProtocolError
from spark_kafka_sink.records.compression import Codec, codec_of, compress, decompress
from tests.every import every

LEVELS = {
    Codec.NONE: [0],
    Codec.GZIP: [-1, 1, 9],
    Codec.SNAPPY: [0],
    Codec.LZ4: [-65537, -5, 0, 3, 16],
    Codec.ZSTD: [-131072, -5, 1, 3, 22],
}
COMPRESSING = [codec for codec in Codec if codec != Codec.NONE]
every_level = pytest.mark.parametrize(("codec", "level"), [(codec, level) for codec in Codec for level in LEVELS[codec]])
every_compressing = pytest.mark.parametrize("codec", COMPRESSING)
TEXT = b"".join(b"row %d of a text that repeats itself\n" % i for i in range(9000))  # 340 KB: several blocks of every codec


def level_of(codec: Codec) -> int:
    return LEVELS[codec][len(LEVELS[codec]) // 2]


@every_level
def test_what_is_compressed_at_any_level_comes_back(codec: Codec, level: int) -> None:
    buffers = [memoryview(TEXT)[start : start + 16384] for start in range(0, len(TEXT), 16384)]
    compressed = compress(codec, level, buffers)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    hardly_tries = codec == Codec.NONE or level < -1000
    assert hardly_tries or len(compressed) < len(TEXT)


@every_compressing
@given(pieces=st.lists(st.binary(max_size=60), max_size=8))
@settings(deadline=None)
def test_buffers_are_compressed_as_the_bytes_they_make_together(codec: Codec, pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    compressed = compress(codec, level_of(codec), [bytearray(piece) for piece in pieces])
    assert bytes(compressed) == bytes(compress(codec, level_of(codec), [whole]))
    assert decompress(codec, memoryview(compressed), len(whole)) == whole


def test_lz4_frames_have_independent_blocks_and_no_content_size() -> None:
    several_blocks = TEXT * 4
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, 0, [several_blocks]))
    assert (info["block_linked"], info["content_size"], info["content_checksum"], info["block_checksum"]) == (
        False,
        0,
        False,
        False,
    )


def test_lz4_blocks_of_a_large_batch_have_256_kib() -> None:
    assert lz4.frame.get_frame_info(compress(Codec.LZ4, 0, [TEXT * 4]))["block_size"] == 256 * 1024


def test_lz4_of_a_small_batch_needs_no_large_buffer_at_the_reader() -> None:
    assert lz4.frame.get_frame_info(compress(Codec.LZ4, 0, [TEXT[:60_000]]))["block_size"] == 64 * 1024


def test_snappy_is_framed_as_snappy_java_does() -> None:
    compressed = compress(Codec.SNAPPY, 0, [TEXT])
    assert compressed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", compressed, 16)
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + size])) == TEXT[: 32 * 1024]


def test_snappy_without_a_frame_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_zstd_that_does_not_say_its_size_is_read_as_java_writes_it() -> None:
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    assert decompress(Codec.ZSTD, streamed, len(TEXT)) == TEXT
    with pytest.raises(ProtocolError):
        decompress(Codec.ZSTD, streamed, len(TEXT) - 1)


def test_gzip_of_several_members_is_read_to_its_end() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 100) == b"one two"


@every("codec", Codec)
def test_data_over_the_limit_is_an_error(codec: Codec) -> None:
    compressed = compress(codec, level_of(codec), [bytes(1_000_000)])
    with pytest.raises(ProtocolError, match=f"{codec.name.lower()} data"):
        decompress(codec, compressed, 999_999)
    assert decompress(codec, compressed, 1_000_000) == bytes(1_000_000)


@pytest.mark.fault("hostile bytes", "decompression bomb")
@every_compressing
def test_a_bomb_costs_no_memory(codec: Codec) -> None:
    bomb = compress(codec, level_of(codec), [bytes(64_000_000)])
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decompress(codec, bomb, 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000


@every_compressing
def test_data_cut_off_anywhere_is_an_error(codec: Codec) -> None:
    compressed = compress(codec, level_of(codec), [TEXT[:3000]])
    ends = range(1, len(compressed))
    # A snappy file may end behind any block; here there is one, so only the bare header is whole.
    for end in (end for end in ends if (codec, end) != (Codec.SNAPPY, 16)):
        with pytest.raises(ProtocolError):
            decompress(codec, compressed[:end], 10_000)


@pytest.mark.fault("hostile bytes", "corrupt lz4 and other codecs")
@every_compressing
@given(
    noise=st.binary(max_size=80), flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=3)
)
@settings(deadline=None)
def test_corrupt_data_is_an_error_or_within_the_limit(codec: Codec, noise: bytes, flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(compress(codec, level_of(codec), [TEXT[:1000]]))
    for place, change in flips:
        damaged[place % len(damaged)] ^= change
    for data in (noise, bytes(damaged)):
        with suppress(ProtocolError):
            assert len(decompress(codec, data, 5000)) <= 5000


def test_codecs_have_kafkas_names_and_numbers() -> None:
    assert {name: codec_of(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")} == {
        "none": 0,
        "gzip": 1,
        "snappy": 2,
        "lz4": 3,
        "zstd": 4,
    }
    with pytest.raises(
        OptionError, match=r"compression\.type: 'brotli' is not supported; it must be one of none, gzip, snappy, lz4, zstd"
    ):
        codec_of("brotli")
