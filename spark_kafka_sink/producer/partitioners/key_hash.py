"""Hashes a whole column of keys, four bytes of every key at a time, with murmur2, CRC32 or FNV-1a."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.records.arrow_arrays import holds_bytes, offsets_of

Hashes = NDArray[np.uint32]

_MASK = 0xFFFFFFFF

# The bits of the last, partial word of a key, by length modulo 4.
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)

# Hash, word and scratch arrays of this size stay in the second-level cache. One pass costs about 40 us of numpy calls, and
# Spark's Arrow batches have 10,000 rows.
_ROWS_PER_PASS = 16384
# Bytes gathered at once per key. The narrow window is for keys that fit into it, and writes less memory.
_WINDOWS = (16, 64)
# Below this number of rows, Python (50 ns per word of a key) is faster than a numpy step over all rows (3 us).
_FEW_ROWS = 48


@dataclass(frozen=True, slots=True)
class KeyHash:
    """A 32-bit hash of bytes, as steps over many keys. Every array is uint32, except lengths and remainders.

    Attributes:
        begin: `(lengths, hashes)`. Sets the initial hash of each key. A single length stands for all.
        step: `(hashes, words, word, scratch)`. Adds the next 4 bytes of every key to its hash. The words are little-endian, with
            any stride. `word` and `scratch` are working memory of the length of `hashes`.
        finish: `(hashes, tails, remainders)`. Adds the last 0 to 3 bytes and completes the hash. `remainders` is the number of
            these bytes. A tail is a word padded with zeros at the top. Both may be one number for all rows.
        rest: `(words, value)`. Adds whole words of a single key, as bytes, to its hash `value`. Returns the new hash.
    """

    begin: Callable[[NDArray[Any], Hashes], None]
    step: Callable[[Hashes, NDArray[Any], Hashes, Hashes], None]
    finish: Callable[[Hashes, Any, Any], None]
    rest: Callable[[bytes, int], int]


def hash_keys(keys: pa.Array, by: KeyHash, length: int | None = None) -> Hashes:
    """Returns the hash of each key, shape (len(keys),).

    Args:
        keys: binary, large_binary, string (hashed as UTF-8) or large_string; may be sliced. The hash of a null is unspecified.
        length: the length of every key, if they are known to have one and none is null.
    """
    offsets, data = _buffers(keys)
    hashes = np.empty(len(keys), np.uint32)
    for start in range(0, len(keys), _ROWS_PER_PASS):
        rows = slice(start, min(start + _ROWS_PER_PASS, len(keys)))
        starts = offsets[rows]
        if length is not None:
            by.begin(np.array([length]), hashes[rows])
            _hash_constant(by, int(starts[0]), length, data, hashes[rows])
            continue
        _hash_rows(by, starts, offsets[rows.start + 1 : rows.stop + 1] - starts, data, hashes[rows])
    return hashes


def _buffers(keys: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    if not holds_bytes(keys.type):
        raise SchemaError(f"column key is {keys.type}, not binary or string: cast it to binary", column="key")
    data = keys.buffers()[2]
    return offsets_of(keys), np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _hash_rows(by: KeyHash, starts: NDArray[Any], lengths: NDArray[Any], data: NDArray[np.uint8], out: Hashes) -> None:
    by.begin(lengths, out)
    if lengths.min() == lengths.max():
        _hash_constant(by, int(starts[0]), int(lengths[0]), data, out)
    else:
        _hash_variable(by, starts, lengths, data, out)


def _hash_constant(by: KeyHash, first: int, length: int, data: NDArray[np.uint8], hashes: Hashes) -> None:
    """Hashes keys of equal length. They are `length` bytes apart, so their words already form columns, although unaligned."""
    count = len(hashes)
    word, scratch = np.empty(count, np.uint32), np.empty(count, np.uint32)
    whole, remainder = length & ~3, length & 3
    for at in range(first, first + whole, 4):
        by.step(hashes, np.ndarray((count,), "<u4", data, at, (length,)), word, scratch)
    tails = np.zeros(1, np.uint32)
    if remainder:
        tails = np.ndarray((count,), "<u2" if remainder > 1 else "u1", data, first + whole, (length,)).astype(np.uint32)
    if remainder == 3:
        tails |= np.ndarray((count,), np.uint8, data, first + whole + 2, (length,)).astype(np.uint32) << np.uint32(16)
    by.finish(hashes, tails, remainder)


def _hash_variable(by: KeyHash, starts: NDArray[Any], lengths: NDArray[Any], data: NDArray[np.uint8], out: Hashes) -> None:
    """Hashes keys of different lengths, sorted by their number of words, longest first, so each step works on the first rows.
    Words are gathered in windows of up to 64 bytes, which costs no more than gathering a single word.
    """
    words = lengths >> 2
    maximum = int(words.max())
    # numpy's stable argsort is a radix sort (2 ns a row) up to 16 bits, a merge sort (20-50 ns) above.
    narrow = np.uint8 if maximum < 1 << 8 else np.uint16 if maximum < 1 << 16 else np.uint32
    order = np.argsort((maximum - words).astype(narrow), kind="stable")
    starts, lengths, hashes = starts[order], lengths[order], out[order]
    # active[w]: number of keys with more than w whole words.
    active = (len(words) - np.cumsum(np.bincount(words, minlength=maximum + 1))).tolist()
    tails = np.zeros(len(words), np.uint32)
    vector_words = next(w for w, rows in enumerate(active) if rows < _FEW_ROWS)  # no key has more than the maximum
    few = active[vector_words]
    _hash_windows(by, starts, data, hashes, tails, [*active[:vector_words], 0])
    remainders = lengths & 3
    tails &= _TAIL_MASKS[remainders]
    for row in range(few):
        start, end = int(starts[row]) + 4 * vector_words, int(starts[row] + lengths[row])
        words_end = start + ((end - start) & ~3)
        hashes[row] = by.rest(data[start:words_end].tobytes(), int(hashes[row]))
        tails[row] = int.from_bytes(data[words_end:end].tobytes(), "little")
    by.finish(hashes, tails, remainders)
    out[order] = hashes


def _hash_windows(
    by: KeyHash, starts: NDArray[Any], data: NDArray[np.uint8], hashes: Hashes, tails: Hashes, active: list[int]
) -> None:
    """Hashes words 0 to len(active) - 1 of each key that has them. Copies the word after a key's last whole word to `tails`."""
    width = _WINDOWS[0] if 4 * len(active) <= _WINDOWS[0] else _WINDOWS[1]
    word, scratch = np.empty(len(hashes), np.uint32), np.empty(len(hashes), np.uint32)
    before = len(hashes)
    for first in range(0, len(active), width // 4):
        matrix = _windows(data, starts[:before] + 4 * first, width)
        for column, rows in enumerate(active[first : first + width // 4]):
            tails[rows:before] = matrix[rows:before, column]
            if rows:
                by.step(hashes[:rows], matrix[:rows, column], word[:rows], scratch[:rows])
            before = rows


def _windows(data: NDArray[np.uint8], starts: NDArray[Any], width: int) -> Hashes:
    """Returns the `width` bytes at each start as words, shape (len(starts), width / 4), including bytes after a key."""
    first, last = int(starts.min()), int(starts.max())
    if last + width > len(data):
        padded = np.zeros(last + width - first, np.uint8)
        padded[: len(data) - first] = data[first:]
        data, starts = padded, starts - first
    overlapping = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    return cast("Hashes", overlapping[starts].view("<u4").reshape(len(starts), width // 4))


# murmur2: Java's `Utils.murmur2`, which determines the partition of a record with a key

# Made once, because each hash of a column uses them some 20 times.
_MURMUR2_SEED = np.uint32(0x9747B28C)
_MURMUR2_FACTOR_INT = 0x5BD1E995
_MURMUR2_FACTOR = np.uint32(_MURMUR2_FACTOR_INT)
_MURMUR2_SHIFT, _13, _15 = np.uint32(24), np.uint32(13), np.uint32(15)
# Factor of a hash after its tail, by length modulo 4 (1: there is no tail).
_MURMUR2_TAIL_FACTORS = np.array([1, _MURMUR2_FACTOR, _MURMUR2_FACTOR, _MURMUR2_FACTOR], np.uint32)


def murmur2(keys: pa.Array, length: int | None = None) -> NDArray[np.int32]:
    """Returns Java's 32-bit hash of each key, shape (len(keys),). See `hash_keys` for key types and nulls."""
    return hash_keys(keys, _MURMUR2, length).view(np.int32)


def to_positive(hashes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Clears the sign bit, like Java's `Utils.toPositive`. The result is not the absolute value."""
    return hashes & np.int32(0x7FFFFFFF)


def _murmur2_begin(lengths: NDArray[Any], hashes: Hashes) -> None:
    np.bitwise_xor(lengths.astype(np.uint32), _MURMUR2_SEED, out=hashes)


def _murmur2_step(hashes: Hashes, words: NDArray[Any], word: Hashes, scratch: Hashes) -> None:
    np.multiply(words, _MURMUR2_FACTOR, out=word)
    np.right_shift(word, _MURMUR2_SHIFT, out=scratch)
    np.bitwise_xor(word, scratch, out=word)
    np.multiply(word, _MURMUR2_FACTOR, out=word)
    np.multiply(hashes, _MURMUR2_FACTOR, out=hashes)
    np.bitwise_xor(hashes, word, out=hashes)


def _murmur2_finish(hashes: Hashes, tails: Any, remainders: Any) -> None:
    hashes ^= tails
    hashes *= _MURMUR2_TAIL_FACTORS[remainders]
    hashes ^= hashes >> _13
    hashes *= _MURMUR2_FACTOR
    hashes ^= hashes >> _15


def _murmur2_rest(words: bytes, value: int) -> int:
    mixed = np.frombuffer(words, "<u4") * _MURMUR2_FACTOR
    mixed = (mixed ^ (mixed >> _MURMUR2_SHIFT)) * _MURMUR2_FACTOR
    for word in mixed.tolist():
        value = (value * _MURMUR2_FACTOR_INT & _MASK) ^ word
    return value


_MURMUR2 = KeyHash(_murmur2_begin, _murmur2_step, _murmur2_finish, _murmur2_rest)


# CRC32 (zlib's): librdkafka's `consistent`, its default, and Sarama's NewConsistentCRCHashPartitioner

_CRC32_POLYNOMIAL = 0xEDB88320


def crc32(keys: pa.Array, length: int | None = None) -> Hashes:
    """Returns the CRC32 of each key, shape (len(keys),). See `hash_keys` for key types and nulls."""
    return hash_keys(keys, _CRC32, length)


@cache
def _byte_table() -> Hashes:
    """Returns the CRC update for each value of the last byte, shape (256,)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), (table >> np.uint32(1)) ^ np.uint32(_CRC32_POLYNOMIAL), table >> np.uint32(1))
    return table


@cache
def _word_tables() -> tuple[Hashes, Hashes]:
    """Returns the CRC updates for the low and the high half of (CRC xor the next 4 bytes), shape (65536,) each, in 1 ms. This is
    "slicing by 4" with two bytes per lookup: 18 us for 10,000 words, where four lookups of one byte take 52 us.
    """
    byte = _byte_table()
    tables = [byte]
    for _ in range(3):
        tables.append(byte[tables[-1] & np.uint32(0xFF)] ^ (tables[-1] >> np.uint32(8)))
    halves = np.arange(1 << 16)
    first, second = halves & 0xFF, halves >> 8
    return tables[3][first] ^ tables[2][second], tables[1][first] ^ tables[0][second]


def _crc32_begin(lengths: NDArray[Any], hashes: Hashes) -> None:
    hashes.fill(_MASK)


def _crc32_step(hashes: Hashes, words: NDArray[Any], word: Hashes, scratch: Hashes) -> None:
    low, high = _word_tables()
    np.bitwise_xor(hashes, words, out=word)
    halves = word.view("<u2")
    # No half is out of range, and mode="wrap" is the fastest: 18 us where low[halves[::2]] ^ ... takes 29.
    np.take(low, halves[::2], out=hashes, mode="wrap")
    np.take(high, halves[1::2], out=scratch, mode="wrap")
    np.bitwise_xor(hashes, scratch, out=hashes)


def _crc32_finish(hashes: Hashes, tails: Any, remainders: Any) -> None:
    table = _byte_table()
    for i in range(3):
        byte = (tails >> np.uint32(8 * i)) ^ hashes
        after = table[byte & np.uint32(0xFF)] ^ (hashes >> np.uint32(8))
        np.copyto(hashes, after, where=remainders > i)
    np.bitwise_xor(hashes, np.uint32(_MASK), out=hashes)


def _crc32_rest(words: bytes, value: int) -> int:
    return zlib.crc32(words, value ^ _MASK) ^ _MASK


_CRC32 = KeyHash(_crc32_begin, _crc32_step, _crc32_finish, _crc32_rest)


# FNV-1a of 32 bits: Sarama's hash partitioners and librdkafka's `fnv1a`

_FNV1A_OFFSET = 0x811C9DC5
_FNV1A_PRIME = 0x01000193


def fnv1a(keys: pa.Array, length: int | None = None) -> Hashes:
    """Returns the FNV-1a hash of each key, shape (len(keys),). See `hash_keys` for key types and nulls."""
    return hash_keys(keys, _FNV1A, length)


def _fnv1a_begin(lengths: NDArray[Any], hashes: Hashes) -> None:
    hashes.fill(_FNV1A_OFFSET)


def _fnv1a_step(hashes: Hashes, words: NDArray[Any], word: Hashes, scratch: Hashes) -> None:
    word[...] = words
    octets = word.view(np.uint8)
    for i in range(4):
        np.bitwise_xor(hashes, octets[i::4], out=hashes)
        np.multiply(hashes, np.uint32(_FNV1A_PRIME), out=hashes)


def _fnv1a_finish(hashes: Hashes, tails: Any, remainders: Any) -> None:
    for i in range(3):
        octet = (tails >> np.uint32(8 * i)) & np.uint32(0xFF)
        np.copyto(hashes, (hashes ^ octet) * np.uint32(_FNV1A_PRIME), where=remainders > i)


def _fnv1a_rest(words: bytes, value: int) -> int:
    for octet in words:
        value = (value ^ octet) * _FNV1A_PRIME & _MASK
    return value


_FNV1A = KeyHash(_fnv1a_begin, _fnv1a_step, _fnv1a_finish, _fnv1a_rest)
