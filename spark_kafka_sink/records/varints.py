"""Varints (7 bits per byte) of whole columns, as little-endian words that can be concatenated: Kafka's, with zigzag, and
Protobuf's, without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Words = NDArray[Any]  # uint64: numpy keeps it if the other operand is a Python int, which its stubs do not know

_WIDE = 35  # a varlong of more than 8 bytes is split after its fifth: two words hold any 64-bit number
_FIVE_CONTINUED = 0x80_80_80_80_80
_CONTINUED = 0x80_80_80_80_80_80_80  # of 8 bytes, the last of which is not
_BITS_OF_CODE = 56
_BITS_BELOW_EXPONENT, _EXPONENT_OF_1 = 52, 1023  # of a double
_TABLE_REACH = 16_384  # the table is 256 KiB and stays in the L2 cache
_BITS_OF_ENTRY = 24
_WORD_OF_ENTRY = (1 << _BITS_OF_ENTRY) - 1


@dataclass(frozen=True, slots=True)
class Packed:
    """Up to 8 bytes per row: `word` holds them, the first one lowest, and `bits` is the number of bits used.

    An int applies to every row, so that columns of one width cost almost nothing. Bits of `word` above `bits` are 0.
    """

    word: Words | int
    bits: Words | int
    max_bytes: int

    def then(self, other: Packed) -> Packed:
        """Returns these bytes followed by the other's. Together they must fit in 8."""
        return Packed(self.word | (other.word << self.bits), self.bits + other.bits, self.max_bytes + other.max_bytes)


ZERO_BYTE = Packed(0, 8, 1)


def varint(number: int) -> bytes:
    """Encodes any 64-bit number, for read_varint."""
    return unsigned_varint((number << 1) ^ (number >> 63))


def zigzag(values: NDArray[np.int64]) -> Words:
    """Maps 0, -1, 1, -2 ... to 0, 1, 2, 3 ..."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varints(values: NDArray[np.int64] | int, extremes: tuple[int, int] | None = None) -> Sequence[Packed]:
    """Returns each number's varint: one `Packed`, or two if a number needs more than 8 bytes.

    extremes: a lower and an upper bound of the numbers, if they are known.
    """
    if isinstance(values, int):
        return _one_for_all(values)
    least, greatest = extremes or (int(values.min()), int(values.max()))
    if least == greatest:
        return varints(least)
    if least >= -_TABLE_REACH and greatest < _TABLE_REACH:
        entries = _table()[values]  # a negative number counts from the end of the table, as a Python index does
        widest = max(varint_sizes(least), varint_sizes(greatest))
        return [Packed(entries & _WORD_OF_ENTRY, entries >> _BITS_OF_ENTRY, widest)]
    if least >= 0:
        codes: Words = (values << 1).view(np.uint64)
        low, high = 2 * least, 2 * greatest
    else:
        codes = zigzag(values)
        low, high = int(codes.min()), int(codes.max())
    return [_packed(codes, low, high)] if high < 1 << 56 else _wide(codes)


def unsigned_varint(code: int) -> bytes:
    """Encodes a number of 0 to 2**64 - 1 without zigzag."""
    out = bytearray()
    while code > 0x7F:
        out.append(code & 0x7F | 0x80)
        code >>= 7
    out.append(code)
    return bytes(out)


def unsigned_varints(codes: Words | int, extremes: tuple[int, int] | None = None) -> Sequence[Packed]:
    """Returns each number's varint without zigzag: one `Packed`, or two if a number needs more than 8 bytes.

    Args:
        codes: uint64, or one number for every row. Protobuf writes a negative number as its two's complement in 64 bits.
        extremes: a lower and an upper bound of the codes, if they are known.
    """
    if isinstance(codes, int):
        return _one_code_for_all(codes)
    least, greatest = extremes or (int(codes.min()), int(codes.max()))
    if least == greatest:
        return _one_code_for_all(least)
    if greatest < 2 * _TABLE_REACH:
        entries = _table_of_codes()[codes]
        return [Packed(entries & _WORD_OF_ENTRY, entries >> _BITS_OF_ENTRY, _width(greatest))]
    return [_packed(codes, least, greatest)] if greatest < 1 << 56 else _wide(codes)


@overload
def varint_sizes(values: int) -> int: ...
@overload
def varint_sizes(values: NDArray[np.int64]) -> NDArray[np.int64]: ...
def varint_sizes(values: NDArray[np.int64] | int) -> NDArray[np.int64] | int:
    """Returns the size of each number's varint in bytes."""
    if isinstance(values, int):
        return _width((values << 1) ^ (values >> 63))
    codes = zigzag(values)
    low, high = (int(codes.min()), int(codes.max())) if len(codes) else (0, 0)
    sizes = np.full(len(codes), _width(low), np.int64)
    for byte in range(_width(low), _width(high)):
        sizes += codes >= (1 << (7 * byte))
    return sizes


def packed_sizes(varint: Sequence[Packed]) -> NDArray[np.int64] | int:
    """Returns the size in bytes of each number that `varints` encoded; an int applies to every row."""
    bits: Words | int = 0
    for packed in varint:
        bits = packed.bits + bits
    return bits >> 3 if isinstance(bits, int) else (bits >> 3).view(np.int64)


@cache
def _table() -> Words:
    """Returns the varints of 0 to reach - 1, then of -reach to -1. A lookup takes a third of the time of the arithmetic."""
    return _entries(zigzag(np.roll(np.arange(-_TABLE_REACH, _TABLE_REACH), _TABLE_REACH)))


@cache
def _table_of_codes() -> Words:
    """Returns the varints of the codes 0 to 2 * reach - 1."""
    return _entries(np.arange(2 * _TABLE_REACH, dtype=np.uint64))


def _entries(codes: Words) -> Words:
    """Returns the table of codes that are below 2 * reach."""
    packed = _packed(codes, 0, 2 * _TABLE_REACH - 1)
    bits: Words = np.asarray(packed.bits << _BITS_OF_ENTRY)
    return packed.word | bits


def _width(code: int) -> int:
    return max(1, (code.bit_length() + 6) // 7)


@lru_cache(maxsize=256)
def _one_for_all(number: int) -> tuple[Packed, ...]:
    return _constant(varint(number))


@lru_cache(maxsize=256)
def _one_code_for_all(code: int) -> tuple[Packed, ...]:
    return _constant(unsigned_varint(code))


def _constant(data: bytes) -> tuple[Packed, ...]:
    pieces = [data[:8], data[8:]] if len(data) > 8 else [data]
    return tuple(Packed(int.from_bytes(piece, "little"), 8 * len(piece), len(piece)) for piece in pieces)


def _packed(codes: Words, low: int, high: int) -> Packed:
    """Returns the varints of codes below 2**56, all between `low` and `high`. Only widths in that range cost time."""
    narrowest, widest = _width(low), _width(high)
    word = _spread(codes, widest)
    if widest - narrowest > 1:  # two comparisons or more take longer than a lookup
        exponents = codes.view(np.int64).astype(np.float64).view(np.int64) >> _BITS_BELOW_EXPONENT
        entries = _table_of_exponents()[exponents]
        word |= entries & _CONTINUED
        return Packed(word, entries >> _BITS_OF_CODE, widest)
    if narrowest > 1:
        word |= _CONTINUED >> (8 * (8 - narrowest))
    bits: Words | int = 8 * narrowest
    for byte in range(narrowest, widest):
        longer = (codes >= (1 << (7 * byte))).astype(np.uint64)
        word |= longer << (8 * byte - 1)
        bits = (longer << 3) + bits
    return Packed(word, bits, widest)


@cache
def _table_of_exponents() -> Words:
    """Returns for each exponent of a double the marks of continued bytes of its code's varint, and above them its bits.

    Rounding does not matter: codes below 2**53 are exact, and those above have eight bytes.
    """
    codes = [0] * _EXPONENT_OF_1 + [1 << power for power in range(_BITS_OF_CODE)] + [1 << (_BITS_OF_CODE - 1)]
    widths = [_width(code) for code in codes]
    return np.array([_CONTINUED >> (8 * (8 - width)) | (8 * width) << _BITS_OF_CODE for width in widths], np.uint64)


def _spread(codes: Words, widest: int) -> Words:
    """Returns codes of at most `widest` bytes with bits 7i to 7i+6 as the lower bits of byte i.

    Each step moves the upper half of every group of bits: of 56 bits by 4, of 28 by 2, of 14 by 1. Adding a multiple moves it.
    """
    codes = codes.copy()
    if widest > 4:
        codes += 15 * (codes & 0x00FF_FFFF_F000_0000)
    if widest > 2:
        codes += 3 * (codes & 0x0FFF_C000_0FFF_C000)
    codes += codes & 0x3F80_3F80_3F80_3F80
    return codes


def _wide(codes: Words) -> list[Packed]:
    """Returns up to ten bytes: the first five, then the rest (none for rows that end before)."""
    long = codes >= (1 << _WIDE)
    first = codes & ((1 << _WIDE) - 1)
    short = _packed(first, 0, (1 << _WIDE) - 1)
    rest = codes >> _WIDE
    rest_packed = _packed(rest, 0, 1 << (64 - _WIDE - 1))
    spread = short.word | np.where(long, np.uint64(_FIVE_CONTINUED), np.uint64(0))
    return [
        Packed(spread, np.where(long, np.uint64(40), short.bits), 5),
        Packed(rest_packed.word, np.where(long, rest_packed.bits, np.uint64(0)), 5),
    ]
