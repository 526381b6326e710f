"""Kafka's compression codecs: compress and decompress the records of a batch.

Each codec processes the whole batch at once. Joining its buffers first costs little (25 GB/s or more with 16 KiB buffers) and is
faster than streaming: lz4 1.4 instead of 0.85 GB/s, zstd 870 instead of 810 MB/s, gzip the same. All of them release the GIL.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import cast

import cramjam
import lz4.frame
import zstandard

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import OptionError, ProtocolError

Buffer = bytes | bytearray | memoryview

_GZIP_FORMAT = 16 + zlib.MAX_WBITS
# The header of xerial's snappy-java, in which Kafka's Java client wraps blocks: magic, version 1, compatible version 1.
_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_SIZE = struct.Struct(">i")
# snappy-java's block size. Blocks of 16 KiB are 2 % larger; blocks of 64 KiB are 10 to 20 % slower.
_SNAPPY_BLOCK = 32 * 1024
_GZIP_PIECE = 4 * 1024
_ZSTD_SOURCE_SIZE = 128 * 1024
_ZSTD_LAST_FAST_LEVEL = 3


class Codec(IntEnum):
    """Codecs, with their numbers in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(name: str) -> Codec:
    """Returns the codec for a value of the option compression.type. Raises OptionError for an unknown one."""
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise OptionError(
            f"option compression.type: {name!r} is not supported; it must be one of {known}", option="compression.type"
        ) from None


def compress(codec: Codec, level: int, buffers: Sequence[Buffer]) -> bytes:
    """Compresses the concatenated buffers. Several threads may call it at once.

    `level` is specific to the codec: gzip -1 to 9; lz4 below 0 is faster, from 3 on smaller; zstd below 0 is faster, up to 22
    smaller. snappy and none have no levels.
    """
    return _COMPRESS[codec](buffers[0] if len(buffers) == 1 else b"".join(buffers), level)


def decompress(codec: Codec, data: Buffer, limit: int) -> bytes:
    """Decompresses data from any client. Raises ProtocolError if it is corrupt or would exceed `limit` bytes."""
    try:
        plain = _DECOMPRESS[codec](data, limit)
    except (zlib.error, RuntimeError, zstandard.ZstdError, cramjam.DecompressionError, struct.error) as error:
        size = counted(len(data), "byte")
        raise ProtocolError(f"{codec.name.lower()} data of {size} cannot be decompressed: {error}") from error
    if len(plain) > limit:
        raise _over(codec, limit)
    return plain


def _over(codec: Codec, limit: int) -> ProtocolError:
    return ProtocolError(f"{codec.name.lower()} data decompresses to more than the {limit:,} bytes allowed")


def _lz4(data: Buffer, level: int) -> bytes:
    # Brokers read independent blocks without a content size. Java and librdkafka write blocks of 64 KiB. For these, lz4 looks for
    # matches of four bytes, and for larger blocks of five, which is faster. In batches of 512 KiB of JSON (the mean of eight
    # kinds), blocks of 256 KiB are 19 % faster at the same level and 1 % larger. Blocks of 1 MiB are not faster. Avro is 1.2 to
    # 2.3 times as fast and 6 to 20 % larger, but zstd suits Avro better anyway. Rows that repeat 100 digits within 1 KB take
    # longer: 3.4 instead of 5.8 GB/s. Java rejects linked blocks, which pyarrow writes. See benchmarks/compression.py.
    return cast(
        bytes,
        lz4.frame.compress(
            data, compression_level=level, block_size=lz4.frame.BLOCKSIZE_MAX256KB, block_linked=False, store_size=False
        ),
    )


class _ZstdContexts(threading.local):
    """A compressor per thread and level. Threads cannot share one, and a new one costs 20 us."""

    def __init__(self) -> None:
        self.by_level: dict[int, zstandard.ZstdCompressor] = {}

    def at(self, level: int) -> zstandard.ZstdCompressor:
        if level not in self.by_level:
            self.by_level[level] = _zstd_compressor(level)
        return self.by_level[level]


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    """Returns a compressor. Up to level 3, it always uses the tables for 128 KiB, which stay in the CPU cache.

    With 512 KiB of JSON at level 1 (the mean of eight kinds), that is 11 % faster than the usual tables, which Java and
    librdkafka have, and as small; only logs with much text are 7 % larger. Minimum matches of 7 instead of 6 bytes are faster on
    digits, but make logs and Avro 3 to 4 % larger. A window of 512 KiB makes logs 3 % smaller, and everything 5 to 9 % slower.
    With the usual tables, pyarrow's and cramjam's zstd are at most 5 % faster than this library.
    """
    if level > _ZSTD_LAST_FAST_LEVEL:
        return zstandard.ZstdCompressor(level=level)
    parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=_ZSTD_SOURCE_SIZE)
    return zstandard.ZstdCompressor(compression_params=parameters)


_zstd_contexts = _ZstdContexts()


def _zstd(data: Buffer, level: int) -> bytes:
    return _zstd_contexts.at(level).compress(data)


def _snappy(data: Buffer, level: int) -> bytes:
    framed: list[Buffer] = [_SNAPPY_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK]))
        framed += (struct.pack(">i", len(block)), block)
    return b"".join(framed)


def _unlz4(data: Buffer, limit: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    plain = cast(bytes, decompressor.decompress(data, max_length=limit + 1))
    if not decompressor.eof and len(plain) <= limit:
        raise RuntimeError("the data ends before the frame does")
    return plain


def _unzstd(data: Buffer, limit: int) -> bytes:
    size = zstandard.frame_content_size(data)
    if size > limit:
        raise _over(Codec.ZSTD, limit)
    if size == 0:
        return b""
    # Java's frames have no content size (-1). The output is then limited by `limit`, and more is an error.
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size if size > 0 else limit, allow_extra_data=False)


def _ungzip(data: Buffer, limit: int) -> bytes:
    """Decompresses gzip members, whose texts are concatenated.

    A decompressor copies the bytes after its member. Members after the first one get the rest in pieces: 50,000 members in a
    megabyte then take 0.1 s instead of 1 s, and the time grows with the size, not with its square.
    """
    plain = bytearray()
    view, position, size = memoryview(data), 0, len(data)
    while position < len(view):
        member = zlib.decompressobj(_GZIP_FORMAT)
        is_whole = False
        while not is_whole:
            piece = view[position : position + size]
            if not len(piece):
                raise zlib.error("it ends before the stream does")
            part = member.decompress(piece, limit + 1 - len(plain))
            if len(plain) + len(part) > limit:
                raise _over(Codec.GZIP, limit)
            is_whole = member.eof
            position += len(piece) - len(member.unused_data)
            if is_whole and position == len(view) and not plain:
                return part  # the usual case, without another copy
            plain += part
        size = _GZIP_PIECE
    return bytes(plain)


def _unsnappy(data: Buffer, limit: int) -> bytes:
    """Decompresses xerial's framing, or one raw block, which librdkafka writes and Java reads."""
    view = memoryview(data)
    if view[:8] != _SNAPPY_HEADER[:8]:
        return bytes(_unsnappy_block(view, limit, 0))
    if len(view) < len(_SNAPPY_HEADER):
        raise ProtocolError(f"snappy data of {counted(len(view), 'byte')} ends in its header")
    plain = bytearray()
    position = len(_SNAPPY_HEADER)
    while position < len(view):
        (size,) = _SNAPPY_SIZE.unpack_from(view, position)
        position += 4
        if not 0 < size <= len(view) - position:
            raise ProtocolError(
                f"snappy data has a block of {counted(size, 'byte')}, but only {counted(len(view) - position, 'is', 'are')} left"
            )
        plain += _unsnappy_block(view[position : position + size], limit, len(plain))
        position += size
    return bytes(plain)


def _unsnappy_block(block: memoryview, limit: int, before: int) -> Buffer:
    """Decompresses a block that follows `before` bytes of plain text, which count towards the limit."""
    if before + cramjam.snappy.decompress_raw_len(block) > limit:
        raise _over(Codec.SNAPPY, limit)
    return memoryview(cramjam.snappy.decompress_raw(block))


_COMPRESS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: lambda data, level: bytes(data),
    Codec.GZIP: lambda data, level: zlib.compress(data, level, _GZIP_FORMAT),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: lambda data, limit: bytes(data),
    Codec.GZIP: _ungzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
