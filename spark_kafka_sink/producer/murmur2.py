"""Java's `Utils.murmur2` for a whole column of keys: the hash that decides a keyed record's partition."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.errors import SchemaError

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF
_INT64_TYPES = (pa.large_binary(), pa.large_string())
_INT32_TYPES = (pa.binary(), pa.string())
# The bits of the last, partial word of a key, by length modulo 4; and what its hash is multiplied with (1: no such word).
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_TAIL_FACTORS = np.array([1, _M, _M, _M], np.uint32)

# Hash, word and scratch of that many rows stay in the second level cache; one pass costs about 40 us of numpy calls, and
# Spark's Arrow batches have 10,000 rows.
_ROWS_PER_PASS = 16384
# Bytes gathered at once per key; the narrow one is for keys that fit it, and halves the memory written.
_WINDOWS = (16, 64)
# Fewer rows than this: a word of a key costs less in Python (50 ns) than as a numpy step over all of them (3 us).
_FEW_ROWS = 48


def murmur2(keys: pa.Array) -> NDArray[np.int32]:
    """Java's 32-bit hash of each key, shape (len(keys),).

    `keys` is binary, large_binary, string (hashed as UTF-8) or large_string, sliced or not. The hash of a null is unspecified.
    """
    offsets, data = _buffers(keys)
    hashes = np.empty(len(keys), np.uint32)
    for start in range(0, len(keys), _ROWS_PER_PASS):
        rows = slice(start, min(start + _ROWS_PER_PASS, len(keys)))
        starts = offsets[rows]
        _hash_rows(starts, offsets[rows.start + 1 : rows.stop + 1] - starts, data, hashes[rows])
    return hashes.view(np.int32)


def to_positive(hashes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Java's `Utils.toPositive`: the sign bit cleared, which is not the absolute value."""
    return hashes & np.int32(0x7FFFFFFF)


def _buffers(keys: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The n + 1 offsets of an array's own rows, and all of its bytes."""
    if keys.type not in _INT32_TYPES + _INT64_TYPES:
        raise SchemaError(f"column key is {keys.type}, not binary or string: cast it to binary", column="key")
    dtype = np.int64 if keys.type in _INT64_TYPES else np.int32
    _, offsets, data = keys.buffers()
    if len(keys) == 0:
        return np.zeros(1, dtype), np.empty(0, np.uint8)
    own = np.frombuffer(offsets, dtype, count=keys.offset + len(keys) + 1)[keys.offset :]
    return own, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _hash_rows(starts: NDArray[Any], lengths: NDArray[Any], data: NDArray[np.uint8], out: NDArray[np.uint32]) -> None:
    np.bitwise_xor(lengths.astype(np.uint32), np.uint32(_SEED), out=out)
    if lengths.min() == lengths.max():
        _hash_constant(int(starts[0]), int(lengths[0]), data, out)
    else:
        _hash_variable(starts, lengths, data, out)
    _finish(out)


def _mix(hashes: NDArray[np.uint32], words: NDArray[Any], word: NDArray[np.uint32], scratch: NDArray[np.uint32]) -> None:
    """One 4-byte step for every row; `word` and `scratch` are at least as long as `hashes`."""
    word, scratch = word[: len(hashes)], scratch[: len(hashes)]
    np.multiply(words, np.uint32(_M), out=word)
    np.right_shift(word, np.uint32(_R), out=scratch)
    np.bitwise_xor(word, scratch, out=word)
    np.multiply(word, np.uint32(_M), out=word)
    np.multiply(hashes, np.uint32(_M), out=hashes)
    np.bitwise_xor(hashes, word, out=hashes)


def _finish(hashes: NDArray[np.uint32]) -> None:
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(_M)
    hashes ^= hashes >> np.uint32(15)


def _hash_constant(first: int, length: int, data: NDArray[np.uint8], hashes: NDArray[np.uint32]) -> None:
    """Keys of one length stand `length` bytes apart: their words are columns already, only unaligned."""
    count = len(hashes)
    word, scratch = np.empty(count, np.uint32), np.empty(count, np.uint32)
    for at in range(first, first + (length & ~3), 4):
        _mix(hashes, np.ndarray((count,), "<u4", data, at, (length,)), word, scratch)
    for i in range(length & 3):
        tail = np.ndarray((count,), np.uint8, data, first + (length & ~3) + i, (length,))
        hashes ^= tail.astype(np.uint32) << np.uint32(8 * i)
    if length & 3:
        hashes *= np.uint32(_M)


def _hash_variable(starts: NDArray[Any], lengths: NDArray[Any], data: NDArray[np.uint8], out: NDArray[np.uint32]) -> None:
    """Keys sorted by their number of words, longest first: each step then works on the first so many rows.

    Words are gathered by windows of up to 64 bytes, which costs no more than gathering a word.
    """
    words = lengths >> 2
    most = int(words.max())
    order = np.argsort((most - words).astype(_narrow(most)), kind="stable")
    starts, lengths, hashes = starts[order], lengths[order], out[order]
    # active[w]: how many keys have more than w whole words.
    active = (len(words) - np.cumsum(np.bincount(words, minlength=most + 1))).tolist()
    tails = np.zeros(len(words), np.uint32)
    vector_words = next(w for w, rows in enumerate(active) if rows < _FEW_ROWS)  # no key has more than the most
    few = active[vector_words]
    _hash_windows(starts, data, hashes, tails, [*active[:vector_words], 0])
    remainders = lengths & 3
    tails &= _TAIL_MASKS[remainders]
    for row in range(few):
        hashes[row], tails[row] = _hash_rest(
            data, int(starts[row]) + 4 * vector_words, int(starts[row] + lengths[row]), hashes[row]
        )
    hashes ^= tails
    hashes *= _TAIL_FACTORS[remainders]
    out[order] = hashes


def _hash_windows(
    starts: NDArray[Any], data: NDArray[np.uint8], hashes: NDArray[np.uint32], tails: NDArray[np.uint32], active: list[int]
) -> None:
    """Words 0 to len(active) - 1 of each key that has them, and the word after its last whole one to `tails`."""
    width = _WINDOWS[0] if 4 * len(active) <= _WINDOWS[0] else _WINDOWS[1]
    word, scratch = np.empty(len(hashes), np.uint32), np.empty(len(hashes), np.uint32)
    before = len(hashes)
    for first in range(0, len(active), width // 4):
        matrix = _windows(data, starts[:before] + 4 * first, width)
        for column, rows in enumerate(active[first : first + width // 4]):
            tails[rows:before] = matrix[rows:before, column]
            if rows:
                _mix(hashes[:rows], matrix[:rows, column], word, scratch)
            before = rows


def _windows(data: NDArray[np.uint8], starts: NDArray[Any], width: int) -> NDArray[np.uint32]:
    """The `width` bytes at each start as words, shape (len(starts), width / 4); whatever stands behind a key is in them too."""
    first, last = int(starts.min()), int(starts.max())
    if last + width > len(data):
        padded = np.zeros(last + width - first, np.uint8)
        padded[: len(data) - first] = data[first:]
        data, starts = padded, starts - first
    overlapping = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    return cast("NDArray[np.uint32]", overlapping[starts].view("<u4").reshape(len(starts), width // 4))


def _hash_rest(data: NDArray[np.uint8], start: int, end: int, value: int) -> tuple[int, int]:
    """One key from `start` on: its hash so far goes in, the hash after its whole words and its tail come out."""
    words_end = start + ((end - start) & ~3)
    words = np.frombuffer(data[start:words_end].tobytes(), "<u4") * np.uint32(_M)
    words = (words ^ (words >> np.uint32(_R))) * np.uint32(_M)
    value = int(value)
    for word in words.tolist():
        value = (value * _M & _MASK) ^ word
    return value, int.from_bytes(data[words_end:end].tobytes(), "little")


def _narrow(most: int) -> type[np.unsignedinteger[Any]]:
    """numpy's stable argsort is a radix sort (2 ns a row) up to 16 bits, a merge sort (20-50 ns) above."""
    return np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.uint32
